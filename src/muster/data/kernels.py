"""The inner loops of reading: from sampled ids to n-step transitions.

    ids -> resolve -> slots (where each transition starts), next_at (where its last step leads),
                      reward sum, discount
    slots -> take -> obs, action;    next_at -> take_next -> next_obs
    stacks of frames -> keep_stacks -> numbers of frames -> take_stacks, take_next_stacks

A slot is a place in the store: id % slots, so the next step of the same environment is `num_envs`
slots further on. `next_at` is a slot, or -1 - p for place p among the final observations. Each
kernel has a NumPy equivalent (see `muster.jit`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import Array
from muster.jit import jit

TERMINATED = 1
TRUNCATED = 2
OPEN = 4
"""Marks the last row of a fragment: no episode ended, but the next row is not its continuation. The
next observation is among the final ones. `follows` says how many rows further on the source
continues, 0 while it has not."""


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
    """NumPy equivalent of `resolve`."""
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
        reward: Reward of every slot.
        end: For every slot: 0, or the sum of TERMINATED and TRUNCATED, or OPEN.
        final_at: For every slot with an end: the place of its final observation.
        follows: For every OPEN row: how many rows further on it continues.
        slot: Output: where each transition starts.
        next_at: Output: where its last step leads.
        total: Output: the discounted sum of its rewards.
        discount: Output: the factor of the value there.
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
    """NumPy equivalent of `follow`."""
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
        ids: The first transitions, [B].
        stop: The first id that does not exist yet.
        num_envs: Distance between two steps of one environment.
        end: For every slot: 0, or the sum of TERMINATED and TRUNCATED, or OPEN.
        final_at: For every slot with an end: the place of its final observation.
        follows: For every OPEN row: how many rows further on it continues.
        path: Output, [B, L + 1]: the slot of each step, then, up to the end of the row, where the
            last step leads.
        count: Output, [B]: the number of steps.
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
    """NumPy equivalent of `take`."""
    np.take(store, slot, axis=0, out=out, mode="clip")  # "raise" would use a temporary array


@jit(take_numpy)
def take(store: Array, slot: NDArray[np.int64], out: Array) -> None:
    """Copy rows `slot` of `store` [slots, width] to `out` [B, width]."""
    for b in range(slot.size):
        at = slot[b]
        for j in range(out.shape[1]):
            out[b, j] = store[at, j]


def take_next_numpy(store: Array, final: Array, next_at: NDArray[np.int64], out: Array) -> None:
    """NumPy equivalent of `take_next`."""
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


def keep_stacks_numpy(
    stacks: NDArray[np.unsignedinteger[Any]],
    ring: NDArray[np.unsignedinteger[Any]],
    before: NDArray[np.int64],
    follows: bool,
    now: NDArray[np.int64],
    was_there: bool,
    number: int,
) -> int:
    """NumPy equivalent of `keep_stacks`."""
    for n, stack in enumerate(stacks):
        if was_there and (stack == ring[now[n] % len(ring)]).all():
            continue
        first = 0
        if follows and (stack[:-1] == ring[before[n, 1:] % len(ring)]).all():
            first = len(stack) - 1
            now[n, :first] = before[n, 1:]
        added = np.arange(number, number + len(stack) - first)
        ring[added % len(ring)] = stack[first:]
        now[n, first:] = added
        number += len(added)
    return number


@jit(keep_stacks_numpy)
def keep_stacks(
    stacks: NDArray[np.unsignedinteger[Any]],
    ring: NDArray[np.unsignedinteger[Any]],
    before: NDArray[np.int64],
    follows: bool,
    now: NDArray[np.int64],
    was_there: bool,
    number: int,
) -> int:
    """Write the frames of stacks [N, k, width] to a ring [places, width], except those it holds.

    Args:
        stacks: The stack of each environment, oldest frame first; fastest in words of eight bytes.
        ring: Frame number i is at i % places. It must have room for all frames.
        before: [N, k], the frame numbers of the previous row.
        follows: Whether these stacks may continue that row.
        now: Input and output: [N, k], the frame numbers of this row.
        was_there: Whether this row already has stacks, which may be these.
        number: The number of the next frame.

    Returns:
        The number of the next frame.
    """
    places, depth, width = ring.shape[0], stacks.shape[1], stacks.shape[2]
    for n in range(stacks.shape[0]):
        different = np.uint64(0 if was_there else 1)
        for j in range(depth):
            if different == 0:
                at = now[n, j] % places
                for i in range(width):
                    different |= stacks[n, j, i] ^ ring[at, i]
        if different == 0:
            continue
        different = np.uint64(0 if follows else 1)
        for j in range(depth - 1):
            if different == 0:
                at = before[n, j + 1] % places
                for i in range(width):
                    different |= stacks[n, j, i] ^ ring[at, i]
        first = 0
        if different == 0:
            first = depth - 1
            for j in range(first):
                now[n, j] = before[n, j + 1]
        for j in range(first, depth):
            at = number % places
            for i in range(width):
                ring[at, i] = stacks[n, j, i]
            now[n, j] = number
            number += 1
    return number


def take_stacks_numpy(
    ring: NDArray[np.uint8], numbers: NDArray[np.int64], slot: NDArray[np.int64], out: Array
) -> None:
    """NumPy equivalent of `take_stacks`."""
    out[:] = ring[numbers[slot] % len(ring)].reshape(out.shape)


@jit(take_stacks_numpy)
def take_stacks(
    ring: NDArray[np.uint8], numbers: NDArray[np.int64], slot: NDArray[np.int64], out: Array
) -> None:
    """Copy the frames of slots, given by numbers [slots, k], to `out` [B, k * width]."""
    width = ring.shape[1]
    for b in range(slot.size):
        for j in range(numbers.shape[1]):
            at = numbers[slot[b], j] % ring.shape[0]
            for i in range(width):
                out[b, j * width + i] = ring[at, i]


def take_next_stacks_numpy(
    ring: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    final: Array,
    next_at: NDArray[np.int64],
    out: Array,
) -> None:
    """NumPy equivalent of `take_next_stacks`."""
    take_stacks_numpy(ring, numbers, np.maximum(next_at, 0), out)
    aside = next_at < 0
    out[aside] = final[-1 - next_at[aside]]


@jit(take_next_stacks_numpy)
def take_next_stacks(
    ring: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    final: Array,
    next_at: NDArray[np.int64],
    out: Array,
) -> None:
    """Copy the stacks that `next_at` points to, in `ring` or `final`, to `out`."""
    width = ring.shape[1]
    for b in range(next_at.size):
        if next_at[b] < 0:
            for i in range(out.shape[1]):
                out[b, i] = final[-1 - next_at[b], i]
            continue
        for j in range(numbers.shape[1]):
            at = numbers[next_at[b], j] % ring.shape[0]
            for i in range(width):
                out[b, j * width + i] = ring[at, i]
