"""Q-learning from the outputs of a network: actions, and the loss of the actions taken.

    outputs [n, K], noise     -> explore_or_best -> action
    outputs, action, target   -> q_loss          -> d_outputs, sums for the log

The K outputs are the values of K actions. Each function has a NumPy equivalent (see `muster.jit`).
NaN and infinity propagate into derivatives and sums.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.rl_utils.illegal import ILLEGAL

Array = NDArray[Any]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ZERO, _HALF = np.float32(0), np.float32(0.5)
_ILLEGAL = np.float32(ILLEGAL)
BEST = -1.0
"""The noise of a step that does not explore."""


def exploration(uniform: Floats, epsilon: float) -> Floats:
    """Return the exploration noise: a number in [0, 1) with probability epsilon, else `BEST`.

    One number determines both: below epsilon it is uniform, too.

    Args:
        uniform: In [0, 1).
        epsilon: Probability of a random action.
    """
    if epsilon <= 0:
        return np.full_like(uniform, BEST)
    which = uniform / np.float32(epsilon)
    return np.where(uniform < np.float32(epsilon), which, np.float32(BEST))


def explore_or_best_numpy(outputs: Floats, noise: Floats, action: Array) -> None:
    """NumPy equivalent of `explore_or_best`."""
    legal = ~(outputs <= _ILLEGAL)  # NaN counts as legal, so that it is not hidden
    count = legal.sum(axis=1)
    wanted = np.minimum((noise[:, 0] * count.astype(np.float32)).astype(np.int64), count - 1)
    drawn = (legal.cumsum(axis=1) == wanted[:, None] + 1).argmax(axis=1)
    action[:, 0] = np.where(noise[:, 0] < 0, outputs.argmax(axis=1), drawn)


@jit(explore_or_best_numpy)
def explore_or_best(outputs: Floats, noise: Floats, action: Array) -> None:
    """Write an action for each row of outputs: a legal one that `noise` selects, or the best.

    Args:
        outputs: [n, K].
        noise: [n, 1], from `exploration`.
        action: int64 [n, 1], output.
    """
    for i in range(action.shape[0]):
        if noise[i, 0] < _ZERO:
            best = 0
            for k in range(1, outputs.shape[1]):
                x, so_far = outputs[i, k], outputs[i, best]
                if x > so_far or (x != x and so_far == so_far):
                    best = k  # NaN wins, as in NumPy
            action[i, 0] = best
        else:
            count = 0
            for k in range(outputs.shape[1]):
                if not outputs[i, k] <= _ILLEGAL:
                    count += 1
            wanted: Any = min(np.int64(noise[i, 0] * np.float32(count)), count - 1)
            for k in range(outputs.shape[1]):
                if not outputs[i, k] <= _ILLEGAL:
                    if wanted == 0:
                        action[i, 0] = k
                        break
                    wanted -= 1


def q_loss_numpy(
    outputs: Floats,
    rows: Ints,
    action: Array,
    target: Floats,
    scale: float,
    d_outputs: Floats,
    stats: NDArray[np.float64],
) -> int:
    """NumPy equivalent of `q_loss`."""
    outside = (rows < 0) | (rows >= len(target))
    done = action[np.where(outside, 0, rows), 0]
    outside |= (done < 0) | (done >= outputs.shape[1])
    if outside.any():
        return int(outside.argmax())
    each = np.arange(len(rows))
    q = outputs[each, done]
    error = q - target[rows]
    d_outputs[:] = 0
    d_outputs[each, done] = np.float32(scale) * error
    sums = (_HALF * error * error, q, np.abs(error))
    stats += [scale * np.sum(x, dtype=np.float64) for x in sums]
    return -1


@jit(q_loss_numpy)
def q_loss(
    outputs: Floats,
    rows: Ints,
    action: Array,
    target: Floats,
    scale: float,
    d_outputs: Floats,
    stats: NDArray[np.float64],
) -> int:
    """Half the squared error of the values of the actions taken, and its derivative.

    Args:
        outputs: [m, K], of the network that learns.
        rows: int64 [m], the rows of the arrays below that they belong to.
        action: int64 [R, 1], the actions taken.
        target: [R], targets of their values.
        scale: Weight of one row.
        d_outputs: [m, K], output.
        stats: float64 [3], incremented: the loss, the value, the absolute error.

    Returns:
        -1, or the first of the m rows that does not exist, or whose action does not.
    """
    share = np.float32(scale)
    loss, values, errors = 0.0, 0.0, 0.0
    for i in range(rows.size):
        row = rows[i]
        if row < 0 or row >= target.size:
            return i
        chosen = np.int64(action[row, 0])
        if chosen < 0 or chosen >= outputs.shape[1]:
            return i
        error = outputs[i, chosen] - target[row]
        for k in range(outputs.shape[1]):
            d_outputs[i, k] = _ZERO
        d_outputs[i, chosen] = share * error
        loss += np.float64(_HALF * error * error)
        values += np.float64(outputs[i, chosen])
        errors += np.float64(abs(error))
    stats[0] += scale * loss
    stats[1] += scale * values
    stats[2] += scale * errors
    return -1
