"""The layers of a small network, forwards and backwards, as parts of compiled kernels.

    forward:   observations in `work` -> every layer's output, in `work`
    backward:  derivatives by the last layers -> derivatives by all outputs, and grad

A block of up to 64 rows lies feature by feature, [features, rows padded to a multiple of 16]: then
a layer multiplies torch's [out, in] weights as they are, and narrow last layers waste no lanes.
Only the gradient of a layer's weights needs its input row by row, and transposes it.

What is fixed for a network comes as arrays of numbers (made by `fused_policy`):
    layers  int64 [L, 11]: one row per Linear layer, columns below
    plan    int64 [10]: places below
    work    float32: everything that is written in between, at places that `layers` and `plan` name
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.nets.tile import LANES, fma, inlined, multiply, noinline, part, spread, transpose

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 64
"""Rows that are computed together; a multiple of LANES."""

IN, OUT, WEIGHT, BIAS, END, SOURCE, HIDDEN, DELTA, NORM, NORM_BIAS, UNIT = range(11)
"""Columns of `layers`: widths; where weight and bias lie in the parameters; how the layer ends;
which layer it reads (-1: the observation); where its output and the derivative by it lie in `work`;
where weight and bias of its LayerNorm lie in the parameters (-1: it has none), and in `work` what
that normalised, [out, lanes], and after it [lanes] what it was multiplied by.
"""
N_OBS, WIDTH, POLICY, VALUE, GAUSSIAN, LOG_STD, OBS, ROWS, SCRATCH, Q = range(10)
"""Places of `plan`: numbers in an observation, and in an action; the last layers of both nets (-1:
the value is that of the best output); 1 for a Gaussian; where its log_std lies in the parameters;
where in `work` the observations lie, the outputs row by row (and then their derivatives), and what
a gradient of weights needs; 1 if the outputs are the values of actions.
"""
NORM_EPS = 1e-5
"""Of every LayerNorm here: torch's default."""
TANH, RELU, LINEAR = 0, 1, 2
"""How a layer ends."""

_ZERO, _ONE, _EPS = np.float32(0), np.float32(1), np.float32(NORM_EPS)
# tanh as a quotient of polynomials, as in Eigen (MathFunctionsImpl.h): exact to some units in the
# last place, and vectorised, which libm's is not.
_FLAT = np.float32(7.90531110763549805)  # beyond it the quotient is 1
_P1, _P3, _P5, _P7, _P9, _P11, _P13 = (
    np.float32(x)
    for x in (
        4.89352455891786e-03,
        6.37261928875436e-04,
        1.48572235717979e-05,
        5.12229709037114e-08,
        -8.60467152213735e-11,
        2.00018790482477e-13,
        -2.76076847742355e-16,
    )
)
_Q0, _Q2, _Q4, _Q6 = (
    np.float32(x)
    for x in (
        4.89352518554385e-03,
        2.26843463243900e-03,
        1.18534705686654e-04,
        1.19825839466702e-06,
    )
)


def padded(n: int) -> int:
    """Return how much room n features and a 1 after them take."""
    return (n + LANES) // LANES * LANES


padded_in_kernels = inlined(padded)


@part
def fill(array: Floats, first: int, last: int, x: Any) -> None:
    """Set array[first:last] to x."""
    noinline()
    for i in range(first, last):
        array[i] = x


@part
def tanh(x: Floats) -> None:
    """Replace x by its tanh. Each multiply-add is written out, so that all lanes round alike."""
    noinline()
    for i in range(x.size):
        z = x[i]
        z = _FLAT if z > _FLAT else (-_FLAT if z < -_FLAT else z)  # NaN stays NaN
        y = z * z
        p = fma(y, _P13, _P11)
        p = fma(y, p, _P9)
        p = fma(y, p, _P7)
        p = fma(y, p, _P5)
        p = fma(y, p, _P3)
        p = fma(y, p, _P1)
        q = fma(y, _Q6, _Q4)
        q = fma(y, q, _Q2)
        q = fma(y, q, _Q0)
        x[i] = z * p / q


@inlined
def through_end(d: Floats, h: Floats, end: int) -> None:
    """Take the derivative d by a layer's output h back to before its activation."""
    if end == TANH:
        for i in range(d.size):
            d[i] *= _ONE - h[i] * h[i]
    elif end == RELU:
        for i in range(d.size):
            d[i] = _ZERO if h[i] <= _ZERO else d[i]


@part
def normalize(
    params: Floats, work: Floats, h_at: int, unit_at: int, w_at: int, b_at: int, n: int, lanes: int
) -> None:
    """Apply LayerNorm to each of `lanes` columns of [n, lanes] at h_at.

    What it is before weight and bias goes to unit_at, and after it the factor of each column. Sums
    go down the columns, so a row's bits do not depend on the others.
    """
    noinline()
    count = np.float32(n)
    factor = unit_at + n * lanes
    fill(work, factor, factor + lanes, _ZERO)
    for j in range(n):
        for i in range(lanes):
            work[factor + i] += work[h_at + j * lanes + i]
    for i in range(lanes):
        work[factor + i] /= count
    for j in range(n):
        for i in range(lanes):
            at = j * lanes + i
            work[unit_at + at] = work[h_at + at] - work[factor + i]
    fill(work, factor, factor + lanes, _ZERO)
    for j in range(n):
        for i in range(lanes):
            x = work[unit_at + j * lanes + i]
            work[factor + i] += x * x
    for i in range(lanes):
        work[factor + i] = _ONE / np.sqrt(work[factor + i] / count + _EPS)
    for j in range(n):
        weight, bias = params[w_at + j], params[b_at + j]
        for i in range(lanes):
            at = j * lanes + i
            x = work[unit_at + at] * work[factor + i]
            work[unit_at + at] = x
            work[h_at + at] = x * weight + bias


@part
def through_norm(
    params: Floats,
    grad: Floats,
    work: Floats,
    d_at: int,
    unit_at: int,
    w_at: int,
    b_at: int,
    n: int,
    m: int,
    lanes: int,
    scratch: int,
) -> None:
    """Take the derivative at d_at back to before LayerNorm; add what its weights get to `grad`."""
    noinline()
    count = np.float32(n)
    factor, mean, pull = unit_at + n * lanes, scratch, scratch + lanes
    fill(work, mean, mean + 2 * lanes, _ZERO)
    for j in range(n):
        weight, by_weight, by_bias = params[w_at + j], _ZERO, _ZERO
        for i in range(m):
            at = j * lanes + i
            by_weight += work[d_at + at] * work[unit_at + at]
            by_bias += work[d_at + at]
        grad[w_at + j] += by_weight
        grad[b_at + j] += by_bias
        for i in range(lanes):
            at = j * lanes + i
            d = work[d_at + at] * weight
            work[d_at + at] = d
            work[mean + i] += d
            work[pull + i] += d * work[unit_at + at]
    for i in range(2 * lanes):
        work[mean + i] /= count
    for j in range(n):
        for i in range(lanes):
            at = j * lanes + i
            own = work[d_at + at] - work[mean + i] - work[unit_at + at] * work[pull + i]
            work[d_at + at] = own * work[factor + i]


@part
def forward(params: Floats, layers: Ints, plan: Ints, work: Floats, lanes: int) -> None:
    """Compute every layer's output [out, lanes] of the observations in `work`."""
    noinline()
    one = lanes // lanes  # no literal, see `multiply`
    for n in range(layers.shape[0]):
        n_in, n_out, source = layers[n, IN], layers[n, OUT], layers[n, SOURCE]
        x_at = plan[OBS] if source < 0 else layers[source, HIDDEN]
        h_at = layers[n, HIDDEN]
        spread(work, h_at, lanes, params, layers[n, BIAS], n_out)
        w_at = layers[n, WEIGHT]
        multiply(work, h_at, lanes, params, w_at, n_in, one, work, x_at, lanes, n_out, lanes, n_in)
        if layers[n, NORM] >= 0:
            places = layers[n, NORM], layers[n, NORM_BIAS]
            normalize(params, work, h_at, layers[n, UNIT], places[0], places[1], n_out, lanes)
        h = work[h_at : h_at + n_out * lanes]
        if layers[n, END] == TANH:
            tanh(h)
        elif layers[n, END] == RELU:
            for i in range(h.size):
                h[i] = _ZERO if h[i] < _ZERO else h[i]


@inlined
def weight_gradient(
    grad: Floats,
    w_at: int,
    b_at: int,
    n_out: int,
    n_in: int,
    work: Floats,
    d_at: int,
    lanes: int,
    x_at: int,
    tile_at: int,
    m: int,
) -> None:
    """Add a layer's gradient over m rows to `grad`: by weights [n_out, n_in], by biases [n_out].

    Args:
        grad: As long as the parameters.
        w_at: Where the layer's weights lie in it.
        b_at: Where the layer's biases lie in it.
        n_out: Outputs of the layer.
        n_in: Inputs of the layer.
        work: Holds the following.
        d_at: Where [n_out, lanes] lies, the derivative by what the layer gave.
        lanes: Rows, with padding.
        x_at: Where [m, padded(n_in)] lies, what it read, and a 1 after the last input: a bias is
            the weight of an input that is always 1.
        tile_at: Where there is room for [n_out, LANES].
        m: Rows.
    """
    one = lanes // lanes
    width = LANES * one
    x_row = padded_in_kernels(n_in)
    whole = n_in // LANES * LANES
    multiply(grad, w_at, n_in, work, d_at, lanes, one, work, x_at, x_row, n_out, whole, m)
    # The last columns would reach into the next row of the weights: they go by way of a tile.
    rest = n_in - whole
    for j in range(n_out):
        for k in range(rest):
            work[tile_at + j * LANES + k] = grad[w_at + j * n_in + whole + k]
        work[tile_at + j * LANES + rest] = grad[b_at + j]
    multiply(
        work, tile_at, width, work, d_at, lanes, one, work, x_at + whole, x_row, n_out, width, m
    )
    for j in range(n_out):
        for k in range(rest):
            grad[w_at + j * n_in + whole + k] = work[tile_at + j * LANES + k]
        grad[b_at + j] = work[tile_at + j * LANES + rest]


@inlined
def backward(
    params: Floats, grad: Floats, layers: Ints, plan: Ints, work: Floats, m: int, lanes: int
) -> None:
    """Add the gradient to `grad`, after derivatives by the last layers were put into `work`."""
    one = lanes // lanes
    for n in range(layers.shape[0]):
        source = layers[n, SOURCE]
        if source >= 0:
            at = layers[source, DELTA]
            fill(work, at, at + layers[source, OUT] * lanes, _ZERO)
    transposed = np.int64(-2)  # which source's output is in the scratch, row by row
    for n in range(layers.shape[0] - 1, -1, -1):
        n_in, n_out, source = layers[n, IN], layers[n, OUT], layers[n, SOURCE]
        x_at = plan[OBS] if source < 0 else layers[source, HIDDEN]
        d_at, h_at, size = layers[n, DELTA], layers[n, HIDDEN], n_out * lanes
        through_end(work[d_at : d_at + size], work[h_at : h_at + size], layers[n, END])
        if layers[n, NORM] >= 0:
            through_norm(
                params,
                grad,
                work,
                d_at,
                layers[n, UNIT],
                layers[n, NORM],
                layers[n, NORM_BIAS],
                n_out,
                m,
                lanes,
                layers[n, UNIT] + (n_out + one) * lanes,
            )
        x_row = padded_in_kernels(n_in)
        if source != transposed:
            fill(work, x_at + n_in * lanes, x_at + (n_in + 1) * lanes, _ONE)
            transpose(work, plan[SCRATCH], x_row, work, x_at, lanes, x_row, lanes)
            transposed = source
        weight_gradient(
            grad,
            layers[n, WEIGHT],
            layers[n, BIAS],
            n_out,
            n_in,
            work,
            d_at,
            lanes,
            plan[SCRATCH],
            plan[SCRATCH] + lanes * x_row,
            m,
        )
        if source >= 0:
            to, w_at = layers[source, DELTA], layers[n, WEIGHT]
            multiply(
                work, to, lanes, params, w_at, one, n_in, work, d_at, lanes, n_in, lanes, n_out
            )
