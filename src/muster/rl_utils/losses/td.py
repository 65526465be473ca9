"""The TD loss of Q-learning, one pass over a batch.

Arrays are float32 and C-contiguous unless a docstring says otherwise. The loops have a NumPy
equivalent (see `muster.jit`).
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.rl_utils.returns import td_targets

Array = NDArray[np.float32]
Ints = NDArray[np.int64]

BAD_SHAPES = -2
"""Returned by `td_loss` when its arrays do not belong to one batch."""


def td_loss_numpy(
    q: Array,
    action: Ints,
    reward: Array,
    discount: Array,
    next_q: Array,
    choose_by: Array,
    weight: Array,
    huber: bool,
    dq: Array,
    td_error: Array,
    sums: NDArray[np.float64],
) -> int:
    """NumPy equivalent of `td_loss`."""
    size, actions = q.shape
    one_each = (action, reward, discount, weight, td_error)
    if any(x.size != size for x in one_each) or not q.shape == next_q.shape == choose_by.shape:
        return BAD_SHAPES
    bad = np.flatnonzero((action < 0) | (action >= actions))
    if bad.size:
        return int(bad[0])
    rows = np.arange(size)
    np.subtract(q[rows, action], td_targets(reward, discount, next_q, choose_by), out=td_error)
    limit = np.float32(1 if huber else np.inf)
    slope = np.clip(td_error, -limit, limit)
    loss = slope * (td_error - np.float32(0.5) * slope)
    dq[...] = 0
    dq[rows, action] = weight * slope / np.float32(size)
    sums[0] = np.mean(weight * loss, dtype=np.float64)
    sums[1] = np.mean(q[rows, action], dtype=np.float64)
    sums[2] = np.mean(np.abs(td_error), dtype=np.float64)
    return -1


@jit(td_loss_numpy, "contract")
def td_loss(
    q: Array,
    action: Ints,
    reward: Array,
    discount: Array,
    next_q: Array,
    choose_by: Array,
    weight: Array,
    huber: bool,
    dq: Array,
    td_error: Array,
    sums: NDArray[np.float64],
) -> int:
    """The weighted mean TD loss of a batch and its gradient.

    Args:
        q: [B, actions], of the network that learns.
        action: int64 [B], the actions taken.
        reward: [B], the n-step sum.
        discount: [B], the factor of the next value; 0 where the episode terminated.
        next_q: [B, actions], of the target network.
        choose_by: [B, actions], the values that choose the action: `next_q` itself, or those of the
            online network for the next observation (double DQN).
        weight: [B], importance weights.
        huber: Linear beyond an error of 1; otherwise half the squared error everywhere.
        dq: [B, actions], output: the gradient of the loss w.r.t. `q`.
        td_error: [B], output: q - target.
        sums: float64 [3], output: the loss, the mean q of the actions taken, the mean of
            abs(td_error).

    Returns:
        -1, or the first row whose action does not exist, or BAD_SHAPES.
    """
    size, actions = q.shape
    if (
        action.size != size
        or reward.size != size
        or discount.size != size
        or weight.size != size
        or td_error.size != size
        or next_q.shape != q.shape
        or choose_by.shape != q.shape
    ):
        return -2
    one, half, zero = np.float32(1), np.float32(0.5), np.float32(0)
    share = one / np.float32(size)
    loss, chosen, absolute = 0.0, 0.0, 0.0
    for i in range(size):
        a = action[i]
        if a < 0 or a >= actions:
            return i
        best = 0
        for j in range(1, actions):
            x = choose_by[i, j]
            if x > choose_by[i, best] or x != x:  # NaN wins, as in NumPy, so that it is not hidden
                best = j
        error = q[i, a] - (reward[i] + discount[i] * next_q[i, best])
        slope = error
        if huber:
            slope = min(max(error, -one), one)
        td_error[i] = error
        for j in range(actions):
            dq[i, j] = zero
        dq[i, a] = weight[i] * slope * share
        loss += weight[i] * slope * (error - half * slope)
        chosen += q[i, a]
        absolute += abs(error)
    sums[0] = loss / size
    sums[1] = chosen / size
    sums[2] = absolute / size
    return -1
