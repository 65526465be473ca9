"""Activations of a layer, forwards and backwards, as parts of compiled kernels.

    tanh, relu   the derivative follows from the output
    gelu, silu   it does not (two inputs have one output), so the input is kept, too

All are quotients of polynomials, written out as multiply-adds: unlike the functions of libm they
vectorise, and all lanes round in the same way.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.nets.tile import fma, inlined, noinline, part, power_of_two

Floats = NDArray[np.float32]

TANH, RELU, LINEAR, GELU, SILU = range(5)
"""The activation at the end of a layer."""
KEEPS_INPUT = (GELU, SILU)
"""Activations whose derivative needs the input."""


def _floats(*numbers: float) -> tuple[np.float32, ...]:
    return tuple(np.float32(x) for x in numbers)


_ZERO, _HALF, _ONE = _floats(0, 0.5, 1)
# tanh as in Eigen (MathFunctionsImpl.h): exact to some units in the last place.
_FLAT = np.float32(7.90531110763549805)  # beyond it the quotient is 1
_P1, _P3, _P5, _P7, _P9, _P11, _P13 = _floats(
    4.89352455891786e-03,
    6.37261928875436e-04,
    1.48572235717979e-05,
    5.12229709037114e-08,
    -8.60467152213735e-11,
    2.00018790482477e-13,
    -2.76076847742355e-16,
)
_Q0, _Q2, _Q4, _Q6 = _floats(
    4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06
)
# erf as in Eigen, on -4 to 4; beyond it erf is 1 in float32.
_ERF_FLAT = np.float32(4)
_A0, _A2, _A4, _A6, _A8, _A10, _A12 = _floats(
    -1.60960333262415e-02,
    -2.95459980854025e-03,
    -7.34990630326855e-04,
    -5.69250639462346e-05,
    -2.10102402082508e-06,
    2.77068142495902e-08,
    -2.72614225801306e-10,
)
_B0, _B2, _B4, _B6, _B8 = _floats(
    -1.42647390514189e-02,
    -7.37332916720468e-03,
    -1.68282697438203e-03,
    -2.13374055278905e-04,
    -1.45660718464996e-05,
)
_ROOT_HALF = np.float32(math.sqrt(0.5))
_BELL = np.float32(1 / math.sqrt(2 * math.pi))
# exp of a number that is not positive: 2**n times a polynomial, as in Cephes (expf.c).
_LOG2_E, _LN2_HIGH, _LN2_LOW, _LOWEST = _floats(
    1.44269504088896341, 0.693359375, -2.12194440e-4, -87.0
)
_E0, _E1, _E2, _E3, _E4, _E5 = _floats(
    5.0000001201e-1,
    1.6666665459e-1,
    4.1665795894e-2,
    8.3334519073e-3,
    1.3981999507e-3,
    1.9875691500e-4,
)


@inlined
def tanh_of(x: Any) -> Any:
    """Return tanh(x)."""
    z = _FLAT if x > _FLAT else (-_FLAT if x < -_FLAT else x)  # NaN stays NaN
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
    return z * p / q


@inlined
def sigmoid_of(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return _HALF + _HALF * tanh_of(_HALF * x)


@inlined
def _erf_of(x: Any) -> Any:
    z = _ERF_FLAT if x > _ERF_FLAT else (-_ERF_FLAT if x < -_ERF_FLAT else x)
    y = z * z
    p = fma(y, _A12, _A10)
    p = fma(y, p, _A8)
    p = fma(y, p, _A6)
    p = fma(y, p, _A4)
    p = fma(y, p, _A2)
    p = fma(y, p, _A0)
    q = fma(y, _B8, _B6)
    q = fma(y, q, _B4)
    q = fma(y, q, _B2)
    q = fma(y, q, _B0)
    return z * p / q


@inlined
def _exp_of_negative(x: Any) -> Any:
    z = x if x > _LOWEST else _LOWEST
    n = np.int32(z * _LOG2_E - _HALF)  # rounds towards zero: the nearest integer if negative
    k = np.float32(n)
    r = fma(k, -_LN2_HIGH, z)
    r = fma(k, -_LN2_LOW, r)
    p = fma(r, _E5, _E4)
    p = fma(r, p, _E3)
    p = fma(r, p, _E2)
    p = fma(r, p, _E1)
    p = fma(r, p, _E0)
    p = fma(p, r * r, r) + _ONE
    return p * power_of_two(n)


@part
def tanh(x: Floats) -> None:
    """Replace x by its tanh."""
    noinline()
    for i in range(x.size):
        x[i] = tanh_of(x[i])


@part
def finish(h: Floats, before: Floats, end: int) -> None:
    """Apply the activation to h; `before` keeps its input if the derivative needs it."""
    noinline()
    if end == TANH:
        tanh(h)
    elif end == RELU:
        for i in range(h.size):
            h[i] = _ZERO if h[i] < _ZERO else h[i]
    elif end == GELU:
        for i in range(h.size):
            x = h[i]
            before[i] = x
            h[i] = x * (_HALF + _HALF * _erf_of(x * _ROOT_HALF))
    elif end == SILU:
        for i in range(h.size):
            x = h[i]
            before[i] = x
            h[i] = x * sigmoid_of(x)


@part
def through_end(d: Floats, h: Floats, before: Floats, end: int) -> None:
    """Turn the derivative d w.r.t. a layer's output h into that w.r.t. its activation's input."""
    noinline()
    if end == TANH:
        for i in range(d.size):
            d[i] *= _ONE - h[i] * h[i]
    elif end == RELU:
        for i in range(d.size):
            d[i] = _ZERO if h[i] <= _ZERO else d[i]
    elif end == GELU:
        for i in range(d.size):
            x = before[i]
            chance = _HALF + _HALF * _erf_of(x * _ROOT_HALF)
            d[i] *= fma(x * _BELL, _exp_of_negative(-_HALF * x * x), chance)
    elif end == SILU:
        for i in range(d.size):
            x = before[i]
            share = sigmoid_of(x)
            d[i] *= share * (_ONE + x * (_ONE - share))
