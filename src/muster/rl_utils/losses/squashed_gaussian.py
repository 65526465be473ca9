"""Actions that are the tanh of a Gaussian: how to sample them, and how to differentiate a loss.

outputs [B, 2A] = mean, log_std;  u = mean + exp(log_std) noise;  action = tanh(u) in (-1, 1)

The density of an action is the Gaussian's divided by 1 - tanh(u)^2 for each number. In float32 that
is 0 from u = 9 on, so its logarithm is computed as 2 (log 2 - u - softplus(-2 u)), which holds for
any u. (Haarnoja et al. 2018, appendix C.)
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Array = NDArray[np.float32]

LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0
"""Beyond these limits the standard deviation is constant, and has no gradient."""
_LOG_2 = np.float32(math.log(2))
_HALF_LOG_2_PI = np.float32(0.5 * math.log(2 * math.pi))


class SquashedDraw(NamedTuple):
    """Sampled actions, and the values needed to differentiate w.r.t. the outputs."""

    action: Array
    """[B, A], in (-1, 1)."""
    logp: Array
    """[B], the logarithm of the density at the action."""
    spread: Array
    """[B, A], exp(log_std) noise."""
    clipped: NDArray[np.bool_]
    """[B, A], where log_std is beyond its bounds."""


def draw_numpy(
    outputs: Array,
    noise: Array,
    action: Array,
    logp: Array,
    spread: Array,
    clipped: NDArray[np.bool_],
) -> None:
    """NumPy equivalent of `draw_into`."""
    mean, raw = np.split(outputs, 2, axis=1)
    log_std = np.clip(raw, np.float32(LOWEST_LOG_STD), np.float32(HIGHEST_LOG_STD))
    np.multiply(np.exp(log_std), noise, out=spread)
    u = mean + spread
    softplus = np.logaddexp(np.float32(0), np.float32(-2) * u)
    log_slope = np.float32(2) * (_LOG_2 - u - softplus)  # of tanh at u
    each = -np.float32(0.5) * noise * noise - log_std - _HALF_LOG_2_PI - log_slope
    np.tanh(u, out=action)
    np.sum(each, axis=1, out=logp)
    np.not_equal(raw, log_std, out=clipped)


@jit(draw_numpy)
def draw_into(
    outputs: Array,
    noise: Array,
    action: Array,
    logp: Array,
    spread: Array,
    clipped: NDArray[np.bool_],
) -> None:
    """Write the fields of the result of `draw`."""
    low, high = np.float32(LOWEST_LOG_STD), np.float32(HIGHEST_LOG_STD)
    zero, half, two = np.float32(0), np.float32(0.5), np.float32(2)
    count = noise.shape[1]
    for i in range(noise.shape[0]):
        total = zero
        for k in range(count):
            raw, z = outputs[i, count + k], noise[i, k]
            log_std = low if raw < low else (high if raw > high else raw)
            clipped[i, k] = raw != log_std
            spread[i, k] = np.exp(log_std) * z
            u = outputs[i, k] + spread[i, k]
            # softplus(-2 u) is -2 u + log(1 + exp(2 u)) where u is negative
            below = np.log1p(np.exp(-two * abs(u)))
            softplus = below if u > zero else below - two * u
            log_slope = two * (_LOG_2 - u - softplus)
            total += -half * z * z - log_std - _HALF_LOG_2_PI - log_slope
            action[i, k] = np.tanh(u)
        logp[i] = total


def draw(outputs: Array, noise: Array) -> SquashedDraw:
    """Sample an action for each row.

    Args:
        outputs: [B, 2A], means and then log_std.
        noise: [B, A], standard normal.
    """
    shape = noise.shape
    drawn = SquashedDraw(
        np.empty(shape, np.float32),
        np.empty(len(noise), np.float32),
        np.empty(shape, np.float32),
        np.empty(shape, np.bool_),
    )
    draw_into(outputs, noise, *drawn)
    return drawn


def best(outputs: Array) -> Array:
    """Return tanh of the mean of each row, [B, A]."""
    action: Array = np.tanh(outputs[:, : outputs.shape[1] // 2])
    return action


def backward(drawn: SquashedDraw, by_action: Array, by_logp: Array) -> Array:
    """Return the gradient of a loss w.r.t. the outputs, [B, 2A], with the noise held fixed.

    Args:
        drawn: The result of `draw`.
        by_action: [B, A], the gradient of the loss w.r.t. the action.
        by_logp: [B], the gradient of the loss w.r.t. logp.
    """
    action = drawn.action
    # logp decreases with log_std directly, and depends on u through the slope of tanh: d/du of
    # -log(1 - tanh(u)^2) is 2 tanh(u).
    by_logp = by_logp[:, None]
    by_u = by_action * (1 - action * action) + by_logp * (2 * action)
    by_log_std = by_u * drawn.spread - by_logp
    by_log_std[drawn.clipped] = 0
    return np.concatenate([by_u, by_log_std], axis=1, dtype=np.float32)
