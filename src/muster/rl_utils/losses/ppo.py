"""PPO's loss and its derivative w.r.t. the outputs of a network, and actions from outputs.

    outputs [n, K], noise    -> sample_actions -> action, logp
    outputs [n, K]           -> best_actions   -> action
    outputs, value, rollout  -> ppo_loss       -> d_outputs, d_value, sums for the log

The meaning of the K outputs (`ActionHead` describes it in words):
    categories: the logits of `sizes[0]` categories, then those of `sizes[1]`, ...
    Gaussian:   `width` means, then `width` logarithms of standard deviations

Compiled networks call these functions from inside their own kernels, torch from Python. Each has a
NumPy equivalent (see `muster.jit`). NaN and infinity propagate into derivatives and sums.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Array = NDArray[Any]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_LOG_SPREAD = np.float32(0.5 * math.log(2 * math.pi))
"""log(density of a Gaussian at its mean) is -_LOG_SPREAD - log_std."""


def _exponentials(logits: Floats, first: int, last: int, out: Floats) -> tuple[Any, Any]:
    """Write exp(logit - highest) of one part of a row, return their sum and log(sum(exp(logits))).

    Both acting and learning compute log-probabilities with it, so that they agree bit for bit.
    """
    highest = logits[first]
    for k in range(first + 1, last):
        if logits[k] > highest:
            highest = logits[k]
    total = _ZERO
    for k in range(first, last):
        x = math.exp(logits[k] - highest)
        out[k] = x
        total += x
    return total, math.log(total) + highest


exponentials_in_kernels = jit(_exponentials)(_exponentials)  # the NumPy equivalents do not use it


def _gaussian_logp(x: Any, mean: Any, log_std: Any) -> tuple[Any, Any]:
    """Return the log-density of x, and its distance from the mean in standard deviations."""
    distance = (x - mean) * math.exp(-log_std)
    return -_HALF * (distance * distance) - log_std - _LOG_SPREAD, distance


gaussian_logp_in_kernels = jit(_gaussian_logp)(_gaussian_logp)


def _parts(sizes: Ints) -> list[slice]:
    """Return the position of each number's logits in a row of outputs."""
    ends = np.cumsum(sizes)
    return [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def logp_numpy(outputs: Floats, action: Array, gaussian: bool, sizes: Ints) -> Floats:
    """Return log-probabilities, [n], of actions [n, width]."""
    if gaussian:
        mean, log_std = np.split(outputs, 2, axis=1)
        distance = (action - mean) * np.exp(-log_std)
        result: Floats = (-_HALF * distance * distance - log_std - _LOG_SPREAD).sum(axis=1)
        return result
    rows = np.arange(len(outputs))
    logp = np.zeros(len(outputs), np.float32)
    for j, part in enumerate(_parts(sizes)):
        logp += _log_softmax(outputs[:, part])[rows, action[:, j]]
    return logp


def sample_actions_numpy(
    outputs: Floats, noise: Floats, gaussian: bool, sizes: Ints, action: Array, logp: Floats
) -> None:
    """NumPy equivalent of `sample_actions`."""
    if gaussian:
        mean, log_std = np.split(outputs, 2, axis=1)
        action[...] = mean + np.exp(log_std) * noise
    for j, part in enumerate(_parts(sizes)):
        logits = outputs[:, part]
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        reached = np.cumsum(weight, axis=1)
        below = (noise[:, j : j + 1] * reached[:, -1:] < reached) & (weight > 0)
        last = weight.shape[1] - 1 - (weight > 0)[:, ::-1].argmax(axis=1)
        action[:, j] = np.where(below.any(axis=1), below.argmax(axis=1), last)
    logp[:] = logp_numpy(outputs, action, gaussian, sizes)


@jit(sample_actions_numpy)
def sample_actions(
    outputs: Floats, noise: Floats, gaussian: bool, sizes: Ints, action: Array, logp: Floats
) -> None:
    """Sample an action for each row of outputs.

    Args:
        outputs: [n, K].
        noise: [n, width]: uniform in [0, 1) for categories, standard normal for a Gaussian.
        gaussian: Whether the outputs are a Gaussian; otherwise categories.
        sizes: [width], number of categories of each part of an action; empty for a Gaussian.
        action: [n, width], int64 or float32, output.
        logp: [n], output: the log-probability of the stored action.
    """
    n, width = action.shape
    weight = np.empty(outputs.shape[1], np.float32)
    for i in range(n):
        total_logp = _ZERO
        if gaussian:
            for j in range(width):
                mean, log_std = outputs[i, j], outputs[i, width + j]
                x = mean + math.exp(log_std) * noise[i, j]
                action[i, j] = x
                total_logp += gaussian_logp_in_kernels(x, mean, log_std)[0]
        else:
            last: Any = np.int64(0)  # a literal 0 would compile `_exponentials` twice
            for j in range(width):
                first, last = last, last + sizes[j]
                total, log_total = exponentials_in_kernels(outputs[i], first, last, weight)
                sought = noise[i, j] * total
                reached = _ZERO
                chosen = first
                for k in range(first, last):
                    if weight[k] > _ZERO:  # rounding must not choose an impossible action
                        chosen = k
                        reached += weight[k]
                        if sought < reached:
                            break
                action[i, j] = chosen - first
                total_logp += outputs[i, chosen] - log_total
        logp[i] = total_logp


def best_actions_numpy(outputs: Floats, gaussian: bool, sizes: Ints, action: Array) -> None:
    """NumPy equivalent of `best_actions`."""
    if gaussian:
        action[...] = outputs[:, : action.shape[1]]
    for j, part in enumerate(_parts(sizes)):
        action[:, j] = outputs[:, part].argmax(axis=1)


@jit(best_actions_numpy)
def best_actions(outputs: Floats, gaussian: bool, sizes: Ints, action: Array) -> None:
    """Write the most likely action for each row of outputs, into action [n, width]."""
    n, width = action.shape
    for i in range(n):
        first = 0
        for j in range(width):
            if gaussian:
                action[i, j] = outputs[i, j]
            else:
                best = first
                last = first + sizes[j]
                for k in range(first + 1, last):
                    x = outputs[i, k]
                    if x > outputs[i, best] or (x != x and outputs[i, best] == outputs[i, best]):
                        best = k  # NaN wins, as in NumPy
                action[i, j] = best - first
                first = last


def ppo_loss_numpy(
    outputs: Floats,
    value: Floats,
    rows: Ints,
    action: Array,
    logp: Floats,
    old_value: Floats,
    advantage: Floats,
    target: Floats,
    gaussian: bool,
    sizes: Ints,
    scale: float,
    clip: float,
    value_clip: float,
    value_coef: float,
    entropy_coef: float,
    d_outputs: Floats,
    d_value: Floats,
    stats: NDArray[np.float64],
) -> int:
    """NumPy equivalent of `ppo_loss`."""
    outside = (rows < 0) | (rows >= len(logp))
    done = action[np.where(outside, 0, rows)]
    if not gaussian:
        outside |= ((done < 0) | (done >= sizes)).any(axis=1)
    if outside.any():
        return int(outside.argmax())
    share = np.float32(scale)
    new = logp_numpy(outputs, done, gaussian, sizes)
    log_ratio = new - logp[rows]
    with np.errstate(over="ignore"):
        wide = np.exp(log_ratio.astype(np.float64))
        ratio = wide.astype(np.float32)
    limited = np.clip(ratio, _ONE - np.float32(clip), _ONE + np.float32(clip))
    free, held = -advantage[rows] * ratio, -advantage[rows] * limited
    slope = np.where(free < held, _ZERO, free)
    error = value - target[rows]
    loss, by_value = error * error, error
    if value_clip > 0:
        step, reach = value - old_value[rows], np.float32(value_clip)
        held_error = old_value[rows] + np.clip(step, -reach, reach) - target[rows]
        flat = (np.abs(step) > reach) & (held_error * held_error > loss)
        loss = np.where(flat, held_error * held_error, loss)
        by_value = np.where(flat, _ZERO, error)
    d_value[:] = np.float32(value_coef) * share * by_value
    pull = (slope * share)[:, None]
    bonus = np.float32(entropy_coef) * share
    if gaussian:
        mean, log_std = np.split(outputs, 2, axis=1)
        distance = (done - mean) * np.exp(-log_std)
        d_outputs[:, : done.shape[1]] = pull * distance * np.exp(-log_std)
        d_outputs[:, done.shape[1] :] = pull * (distance * distance - _ONE) - bonus
        entropy = (log_std + (_LOG_SPREAD + _HALF)).sum(axis=1)
    else:
        entropy = np.zeros_like(value)
        for j, part in enumerate(_parts(sizes)):
            log_p = _log_softmax(outputs[:, part])
            p = np.exp(log_p)
            own = -(p * log_p).sum(axis=1)
            entropy += own
            d_outputs[:, part] = p * (bonus * (log_p + own[:, None]) - pull)
            d_outputs[np.arange(len(rows)), part.start + done[:, j]] += pull[:, 0]
    sums = (
        np.where(free < held, held, free),
        _HALF * loss,
        entropy,
        wide - 1 - log_ratio,
        ~(np.abs(ratio - _ONE) <= np.float32(clip)),
    )
    stats += [scale * np.sum(x, dtype=np.float64) for x in sums]
    return -1


@jit(ppo_loss_numpy)
def ppo_loss(
    outputs: Floats,
    value: Floats,
    rows: Ints,
    action: Array,
    logp: Floats,
    old_value: Floats,
    advantage: Floats,
    target: Floats,
    gaussian: bool,
    sizes: Ints,
    scale: float,
    clip: float,
    value_clip: float,
    value_coef: float,
    entropy_coef: float,
    d_outputs: Floats,
    d_value: Floats,
    stats: NDArray[np.float64],
) -> int:
    """The clipped loss of PPO (Schulman et al. 2017, eq. 7 and 9) and its derivative.

    For each of m rows, multiplied by `scale`:
        max(-A r, -A clip(r, 1 - clip, 1 + clip)) + value_coef (v - R)^2 / 2 - entropy_coef H
    With `value_clip`, the squared error is the larger of that of v and that of the clipped v.

    Args:
        outputs: [m, K], of the network that learns.
        value: [m], of the same network.
        rows: int64 [m], the rows of the arrays below that they belong to.
        action: [R, width], int64 or float32, the actions taken.
        logp: [R], when the action was taken.
        old_value: [R], when the action was taken.
        advantage: [R].
        target: [R], target of the value.
        gaussian: Whether the outputs are a Gaussian; otherwise categories.
        sizes: [width], number of categories of each part of an action; empty for a Gaussian.
        scale: Weight of one row.
        clip: How far the ratio may leave 1.
        value_clip: How far the value may leave the old one; 0: no limit.
        value_coef: Weight of the value loss.
        entropy_coef: Weight of the entropy H.
        d_outputs: [m, K], output.
        d_value: [m], output.
        stats: float64 [5], incremented: see `muster.nets.policy_net.STATS`.

    Returns:
        -1, or the first of the m rows that does not exist, or whose action does not.
    """
    width = action.shape[1]
    share, reach, value_reach = np.float32(scale), np.float32(clip), np.float32(value_clip)
    low, high = _ONE - reach, _ONE + reach
    value_share, bonus = np.float32(value_coef) * share, np.float32(entropy_coef) * share
    log_totals = np.empty(width, np.float32)
    entropies = np.empty(width, np.float32)
    policy_loss, value_loss, entropy_sum, kl, clipped = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(rows.size):
        row = rows[i]
        if row < 0 or row >= logp.size:
            return i
        x = outputs[i]
        d = d_outputs[i]

        new = _ZERO
        entropy = _ZERO
        if gaussian:
            for j in range(width):
                new += gaussian_logp_in_kernels(np.float32(action[row, j]), x[j], x[width + j])[0]
                entropy += x[width + j] + (_LOG_SPREAD + _HALF)
        else:
            last: Any = np.int64(0)
            for j in range(width):
                first, last = last, last + sizes[j]
                chosen = first + np.int64(action[row, j])
                if chosen < first or chosen >= last:
                    return i
                total, log_total = exponentials_in_kernels(x, first, last, d)
                own = _ZERO
                for k in range(first, last):
                    d[k] /= total  # from here on: the probability
                    own -= d[k] * (x[k] - log_total)
                new += x[chosen] - log_total
                entropy += own
                log_totals[j] = log_total
                entropies[j] = own

        log_ratio = new - logp[row]
        wide = math.exp(np.float64(log_ratio))
        ratio = np.float32(wide)
        # All comparisons are written so that NaN is selected.
        limited = low if ratio < low else (high if ratio > high else ratio)
        free = -advantage[row] * ratio
        held = -advantage[row] * limited
        slope = _ZERO if free < held else free  # d(-A r) / d(logp) is -A r
        policy_loss += np.float64(held) if free < held else np.float64(free)
        entropy_sum += np.float64(entropy)
        kl += wide - 1.0 - np.float64(log_ratio)
        clipped += 0.0 if abs(ratio - _ONE) <= reach else 1.0

        error = value[i] - target[row]
        squared = error * error
        by_value = error
        if value_reach > _ZERO:
            step = value[i] - old_value[row]
            if abs(step) > value_reach:
                at_most = value_reach if step > _ZERO else -value_reach
                held_error = old_value[row] + at_most - target[row]
                if held_error * held_error > squared:
                    squared = held_error * held_error
                    by_value = _ZERO
        value_loss += np.float64(_HALF * squared)
        d_value[i] = value_share * by_value

        pull = slope * share
        if gaussian:
            for j in range(width):
                log_std = x[width + j]
                distance = gaussian_logp_in_kernels(np.float32(action[row, j]), x[j], log_std)[1]
                d[j] = pull * distance * math.exp(-log_std)
                d[width + j] = pull * (distance * distance - _ONE) - bonus
        else:
            last = np.int64(0)
            for j in range(width):
                first, last = last, last + sizes[j]
                for k in range(first, last):
                    surplus = x[k] - log_totals[j] + entropies[j]
                    d[k] *= bonus * surplus - pull
                d[first + np.int64(action[row, j])] += pull
    stats[0] += scale * policy_loss
    stats[1] += scale * value_loss
    stats[2] += scale * entropy_sum
    stats[3] += scale * kl
    stats[4] += scale * clipped
    return -1
