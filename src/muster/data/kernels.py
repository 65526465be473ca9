"""The inner loops of reading: from sampled ids to n-step transitions.

    ids -> resolve -> slots (where each transition starts), next_at (where its last step led),
                      reward sum, discount
    slots -> take -> obs, action;    next_at -> take_next -> next_obs

A slot is a place in the store: id % slots, so the same environment's next step is `num_envs` slots
further on. `next_at` is a slot, or -1 - p for place p among the final observations. Each kernel
stands beside its NumPy twin (see `muster.jit`).
"""

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import Array
from muster.jit import jit

TERMINATED = 1
TRUNCATED = 2
OPEN = 4
"""The last row of a fragment: nothing ended, but the next row is not its continuation. What
followed is among the final observations; where its source goes on, `follows` says how many rows on,
and 0 while it has not."""


def resolve_numpy(
    ids: NDArray[np.int64],
    stop: int,
    num_envs: int,
    powers: NDArray[np.float64],
    reward: NDArray[np.float32],
    end: NDArray[np.uint8],
    final_at: NDArray[np.uint32],
    follows: NDArray[np.uint32],
    slot: NDArray[np.int64],
    next_at: NDArray[np.int64],
    total: NDArray[np.float32],
    discount: NDArray[np.float32],
) -> None:
    """Twin of `resolve`."""
    path = np.empty((ids.size, powers.size), np.int64)
    count = np.empty(ids.size, np.int64)
    follow_numpy(ids, stop, num_envs, end, final_at, follows, path, count)
    each = np.arange(ids.size)
    last = path[each, count - 1]
    slot[:] = path[:, 0]
    next_at[:] = path[each, count]
    exact = np.zeros(ids.size)
    for k in range(powers.size - 1):
        there = k < count
        exact[there] += powers[k] * reward[path[there, k]]
    total[:] = exact
    discount[:] = np.where(end[last] & TERMINATED != 0, 0.0, powers[count])


@jit(resolve_numpy)
def resolve(
    ids: NDArray[np.int64],
    stop: int,
    num_envs: int,
    powers: NDArray[np.float64],
    reward: NDArray[np.float32],
    end: NDArray[np.uint8],
    final_at: NDArray[np.uint32],
    follows: NDArray[np.uint32],
    slot: NDArray[np.int64],
    next_at: NDArray[np.int64],
    total: NDArray[np.float32],
    discount: NDArray[np.float32],
) -> None:
    """Follow each transition for up to n steps: to an episode's end or the newest row.

    Args:
        ids: Transitions to read, [B].
        stop: The first id that does not exist yet.
        num_envs: Distance between two steps of one environment.
        powers: gamma^0 .. gamma^n.
        reward: Of every slot.
        end: Of every slot: 0, or TERMINATED and TRUNCATED added, or OPEN.
        final_at: Of every slot with an end: the place of its final observation.
        follows: Of every row that is OPEN: how many rows on it is continued.
        slot: Out: where each transition starts.
        next_at: Out: where its last step led to.
        total: Out: the discounted sum of its rewards.
        discount: Out: what the value there counts.
    """
    slots = reward.size
    for b in range(ids.size):
        following = ids[b]
        at = following % slots
        slot[b] = at
        exact = 0.0
        k = 0
        ended = 0
        while True:
            exact += powers[k] * reward[at]
            k += 1
            ended = end[at]
            step = num_envs
            if ended != 0:
                next_at[b] = -1 - np.int64(final_at[at])
                if ended != OPEN or k == powers.size - 1:
                    break
                step = num_envs * np.int64(follows[at // num_envs])  # type: ignore[assignment]
                if step == 0:
                    break
            at += step
            if at >= slots:
                at -= slots
            following += step
            if k == powers.size - 1 or following >= stop:
                next_at[b] = at
                break
        total[b] = exact
        discount[b] = 0.0 if ended & TERMINATED else powers[k]


def follow_numpy(
    ids: NDArray[np.int64],
    stop: int,
    num_envs: int,
    end: NDArray[np.uint8],
    final_at: NDArray[np.uint32],
    follows: NDArray[np.uint32],
    path: NDArray[np.int64],
    count: NDArray[np.int64],
) -> None:
    """Twin of `follow`."""
    following, at = ids.copy(), ids % end.size
    going = np.ones(ids.size, np.bool_)
    count[:] = 0
    path[:, 0] = at
    for k in range(1, path.shape[1]):
        count += going
        rows = np.where(end[at] == OPEN, follows[at // num_envs], 1).astype(np.int64)
        aside = (end[at] != 0) & ((end[at] != OPEN) | (rows == 0))
        following += rows * num_envs
        then = np.where(aside, -1 - final_at[at].astype(np.int64), following % end.size)
        path[going, k:] = then[going, None]
        going &= ~aside & (following < stop)
        at = np.where(going, then, at)


@jit(follow_numpy)
def follow(
    ids: NDArray[np.int64],
    stop: int,
    num_envs: int,
    end: NDArray[np.uint8],
    final_at: NDArray[np.uint32],
    follows: NDArray[np.uint32],
    path: NDArray[np.int64],
    count: NDArray[np.int64],
) -> None:
    """Follow each transition to its episode's end, the newest row, or for L steps.

    Args:
        ids: Where to begin, [B].
        stop: The first id that does not exist yet.
        num_envs: Distance between two steps of one environment.
        end: Of every slot.
        final_at: Of every slot with an end: the place of its final observation.
        follows: Of every row that is OPEN: how many rows on it is continued.
        path: Out, [B, L + 1]: the slot of each step, and then, up to the end of the row, where the
            last one led to.
        count: Out, [B]: the steps that there are.
    """
    slots = end.size
    length = path.shape[1] - 1
    for b in range(ids.size):
        following = ids[b]
        at = following % slots
        k = 0
        then = at
        while k < length:
            path[b, k] = at
            k += 1
            step = num_envs
            if end[at] == OPEN:
                step = num_envs * np.int64(follows[at // num_envs])  # type: ignore[assignment]
            if end[at] != 0 and (end[at] != OPEN or step == 0):
                then = -1 - np.int64(final_at[at])
                break
            following += step
            at = following % slots
            then = at
            if following >= stop:
                break
        count[b] = k
        for rest in range(k, length + 1):
            path[b, rest] = then


def take_numpy(store: Array, slot: NDArray[np.int64], out: Array) -> None:
    """Twin of `take`."""
    np.take(store, slot, axis=0, out=out, mode="clip")  # "raise" would go through a second array


@jit(take_numpy)
def take(store: Array, slot: NDArray[np.int64], out: Array) -> None:
    """Copy rows `slot` of `store` [slots, width] to `out` [B, width]."""
    for b in range(slot.size):
        at = slot[b]
        for j in range(out.shape[1]):
            out[b, j] = store[at, j]


def take_next_numpy(store: Array, final: Array, next_at: NDArray[np.int64], out: Array) -> None:
    """Twin of `take_next`."""
    np.take(store, np.maximum(next_at, 0), axis=0, out=out, mode="clip")
    aside = next_at < 0
    out[aside] = final[-1 - next_at[aside]]


@jit(take_next_numpy)
def take_next(store: Array, final: Array, next_at: NDArray[np.int64], out: Array) -> None:
    """Copy the observations that `next_at` points to, in `store` or `final`, to `out`."""
    for b in range(next_at.size):
        at = next_at[b]
        if at >= 0:
            for j in range(out.shape[1]):
                out[b, j] = store[at, j]
        else:
            for j in range(out.shape[1]):
                out[b, j] = final[-1 - at, j]
