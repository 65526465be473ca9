"""LayerNorm, forwards and backwards, as parts of compiled kernels.

A block is stored feature by feature, [n, lanes], and sums go down the columns, so a row's bits do
not depend on the rows beside it.
"""

import numpy as np
from numpy.typing import NDArray

from muster.nets.tile import fill, noinline, part

Floats = NDArray[np.float32]

NORM_EPS = 1e-5
"""Eps of every LayerNorm here: torch's default."""

_ZERO, _ONE, _EPS = np.float32(0), np.float32(1), np.float32(NORM_EPS)


@part
def normalize(
    params: Floats, kept: Floats, h_at: int, unit_at: int, w_at: int, b_at: int, n: int, lanes: int
) -> None:
    """Apply LayerNorm to each of `lanes` columns of [n, lanes] at h_at.

    The values before weight and bias go to unit_at, followed by the factor of each column.
    """
    noinline()
    count = np.float32(n)
    factor = unit_at + n * lanes
    fill(kept, factor, factor + lanes, _ZERO)
    for j in range(n):
        for i in range(lanes):
            kept[factor + i] += kept[h_at + j * lanes + i]
    for i in range(lanes):
        kept[factor + i] /= count
    for j in range(n):
        for i in range(lanes):
            at = j * lanes + i
            kept[unit_at + at] = kept[h_at + at] - kept[factor + i]
    fill(kept, factor, factor + lanes, _ZERO)
    for j in range(n):
        for i in range(lanes):
            x = kept[unit_at + j * lanes + i]
            kept[factor + i] += x * x
    for i in range(lanes):
        kept[factor + i] = _ONE / np.sqrt(kept[factor + i] / count + _EPS)
    for j in range(n):
        weight, bias = params[w_at + j], params[b_at + j]
        for i in range(lanes):
            at = j * lanes + i
            x = kept[unit_at + at] * kept[factor + i]
            kept[unit_at + at] = x
            kept[h_at + at] = x * weight + bias


@part
def through_norm(
    params: Floats,
    grad: Floats,
    kept: Floats,
    work: Floats,
    d_at: int,
    unit_at: int,
    w_at: int,
    b_at: int,
    n: int,
    m: int,
    lanes: int,
    sums: int,
    adds: bool,
) -> None:
    """Turn the derivative at d_at in `work` into that w.r.t. the input of LayerNorm.

    The gradient of its weights is written to `grad`, unless empty, or added if `adds`; `sums` is
    the offset in `work` of room for two numbers per column.
    """
    noinline()
    count = np.float32(n)
    factor, mean, pull = unit_at + n * lanes, sums, sums + lanes
    fill(work, mean, mean + 2 * lanes, _ZERO)
    for j in range(n):
        weight = params[w_at + j]
        if grad.size:
            by_weight, by_bias = _ZERO, _ZERO
            for i in range(m):
                at = j * lanes + i
                by_weight += work[d_at + at] * kept[unit_at + at]
                by_bias += work[d_at + at]
            grad[w_at + j] = grad[w_at + j] + by_weight if adds else by_weight
            grad[b_at + j] = grad[b_at + j] + by_bias if adds else by_bias
        for i in range(lanes):
            at = j * lanes + i
            d = work[d_at + at] * weight
            work[d_at + at] = d
            work[mean + i] += d
            work[pull + i] += d * kept[unit_at + at]
    for i in range(2 * lanes):
        work[mean + i] /= count
    for j in range(n):
        for i in range(lanes):
            at = j * lanes + i
            own = work[d_at + at] - work[mean + i] - kept[unit_at + at] * work[pull + i]
            work[d_at + at] = own * kept[factor + i]
