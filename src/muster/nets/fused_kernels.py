"""A small policy network as compiled code: act in one call, the gradient of PPO's loss in one call.

    act:       obs -> [normalise] -> every layer -> outputs, value -> action, logp
    gradient:  rows of obs -> [normalise] -> every layer -> loss -> every layer backwards -> grad

Rows go through in blocks of up to 64, so that all of a block stays in the cache. Inside, a block
lies feature by feature, [features, rows padded to a multiple of 16]: then a layer multiplies
torch's [out, in] weights as they are, and narrow last layers waste no lanes. Only the gradient of
a layer's weights needs its input row by row, and transposes it.

What is fixed for a network comes as arrays of numbers (made by `plan_of` in `fused_policy`):
    layers  int64 [L, 8]: one row per Linear layer, columns below
    plan    int64 [9]: places below
    work    float32: everything that is written in between, at places that `layers` and `plan` name
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.normalizer import LIMIT
from muster.nets.tile import LANES, fma, multiply, noinline, transpose
from muster.rl_utils.ppo_loss import best_actions, ppo_loss, sample_actions

Array = NDArray[Any]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 64
"""Rows that are computed together; a multiple of LANES."""

IN, OUT, WEIGHT, BIAS, END, SOURCE, HIDDEN, DELTA = range(8)
"""Columns of `layers`: widths; where weight and bias lie in the parameters; how the layer ends;
which layer it reads (-1: the observation); where its output and the derivative by it lie in `work`.
"""
N_OBS, WIDTH, POLICY, VALUE, GAUSSIAN, LOG_STD, OBS, ROWS, SCRATCH = range(9)
"""Places of `plan`: numbers in an observation, and in an action; the last layers of both nets; 1
for a Gaussian; where its log_std lies in the parameters; where in `work` the observations lie, the
outputs row by row (and then their derivatives), and what a gradient of weights needs.
"""
TANH, RELU, LINEAR = 0, 1, 2
"""How a layer ends."""

SAMPLE, BEST, VALUES = 0, 1, 2
"""What `act` is to do."""

BAD_SHAPES = -2
"""Returned when arrays do not belong together."""

_ZERO, _ONE = np.float32(0), np.float32(1)
_LIMIT = np.float32(LIMIT)
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


def _absent(*_: Any) -> Any:
    raise RuntimeError("this kernel has no NumPy twin: ask why_not_fused first")


def padded(n: int) -> int:
    """Return how much room n features and a 1 after them take."""
    return (n + LANES) // LANES * LANES


_padded = jit(padded)(padded)


@jit(_absent)
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


@jit(_absent)
def through_end(d: Floats, h: Floats, end: int) -> None:
    """Take the derivative d by a layer's output h back to before its activation."""
    if end == TANH:
        for i in range(d.size):
            d[i] *= _ONE - h[i] * h[i]
    elif end == RELU:
        for i in range(d.size):
            d[i] = _ZERO if h[i] <= _ZERO else d[i]


@jit(_absent)
def forward(params: Floats, layers: Ints, plan: Ints, work: Floats, lanes: int) -> None:
    """Compute every layer's output [out, lanes] of the observations in `work`."""
    noinline()
    one = np.int64(lanes // lanes)  # no literal, see `multiply`
    for n in range(layers.shape[0]):
        n_in, n_out, source = layers[n, IN], layers[n, OUT], layers[n, SOURCE]
        x_at = plan[OBS] if source < 0 else layers[source, HIDDEN]
        h_at = layers[n, HIDDEN]
        for j in range(n_out):
            bias = params[layers[n, BIAS] + j]
            for i in range(lanes):
                work[h_at + j * lanes + i] = bias
        w_at = layers[n, WEIGHT]
        multiply(work, h_at, lanes, params, w_at, n_in, one, work, x_at, lanes, n_out, lanes, n_in)
        h = work[h_at : h_at + n_out * lanes]
        if layers[n, END] == TANH:
            tanh(h)
        elif layers[n, END] == RELU:
            for i in range(h.size):
                h[i] = _ZERO if h[i] < _ZERO else h[i]


@jit(_absent)
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
    noinline()
    one, width = np.int64(lanes // lanes), np.int64(LANES)
    x_row = _padded(n_in)
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


@jit(_absent)
def backward(
    params: Floats, grad: Floats, layers: Ints, plan: Ints, work: Floats, m: int, lanes: int
) -> None:
    """Add the gradient to `grad`, after derivatives by the last layers were put into `work`."""
    noinline()
    one = np.int64(lanes // lanes)
    for n in range(layers.shape[0]):
        source = layers[n, SOURCE]
        if source >= 0:
            at = layers[source, DELTA]
            work[at : at + layers[source, OUT] * lanes] = _ZERO
    transposed = np.int64(-2)  # which source's output is in the scratch, row by row
    for n in range(layers.shape[0] - 1, -1, -1):
        n_in, n_out, source = layers[n, IN], layers[n, OUT], layers[n, SOURCE]
        x_at = plan[OBS] if source < 0 else layers[source, HIDDEN]
        d_at, h_at, size = layers[n, DELTA], layers[n, HIDDEN], n_out * lanes
        through_end(work[d_at : d_at + size], work[h_at : h_at + size], layers[n, END])
        x_row = _padded(n_in)
        if source != transposed:
            work[x_at + n_in * lanes : x_at + (n_in + 1) * lanes] = _ONE
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


@jit(_absent)
def take(
    obs: Floats, row: int, offset: Floats, factor: Floats, work: Floats, at: int, lanes: int
) -> None:
    """Write one observation, normalised if `offset` is not empty, as a column of [n_obs, lanes]."""
    for k in range(obs.shape[1]):
        x = obs[row, k]
        if offset.size:
            x = (x - offset[k]) * factor[k]
            x = -_LIMIT if x < -_LIMIT else (_LIMIT if x > _LIMIT else x)
        work[at + k * lanes] = x


@jit(_absent)
def outputs_by_row(
    params: Floats, layers: Ints, plan: Ints, work: Floats, m: int, lanes: int
) -> int:
    """Write the outputs of m rows as [m, K] to plan[ROWS], return K."""
    n_out, h_at = layers[plan[POLICY], OUT], layers[plan[POLICY], HIDDEN]
    wide: int = n_out * (1 + plan[GAUSSIAN])
    for i in range(m):
        for k in range(n_out):
            work[plan[ROWS] + i * wide + k] = work[h_at + k * lanes + i]
        for k in range(n_out, wide):
            work[plan[ROWS] + i * wide + k] = params[plan[LOG_STD] + k - n_out]
    return wide


@jit(_absent)
def act(
    params: Floats,
    layers: Ints,
    plan: Ints,
    sizes: Ints,
    offset: Floats,
    factor: Floats,
    work: Floats,
    task: int,
    obs: Floats,
    noise: Floats,
    action: Array,
    logp: Floats,
    value: Floats,
) -> int:
    """Compute the network for n observations, and what `task` says.

    Args:
        params: The flat vector.
        layers: See above; so on for plan and work.
        plan: See above.
        sizes: Of the `ActionHead`.
        offset: Of the normaliser; empty without one.
        factor: Of the normaliser; empty without one.
        work: See above.
        task: SAMPLE writes actions, logp and values, BEST actions alone, VALUES values alone.
        obs: [n, n_obs].
        noise: [n, width].
        action: [n, width].
        logp: [n].
        value: [n].

    Returns:
        -1, or BAD_SHAPES.
    """
    count = obs.shape[0]
    if obs.shape[1] != plan[N_OBS] or (task != BEST and value.size != count):
        return BAD_SHAPES
    if task != VALUES and (action.shape[0] != count or action.shape[1] != plan[WIDTH]):
        return BAD_SHAPES
    if task == SAMPLE and (noise.shape != action.shape or logp.size != count):
        return BAD_SHAPES
    for start in range(0, count, BLOCK):
        m = min(BLOCK, count - start)
        lanes = (m + LANES - 1) // LANES * LANES
        for i in range(m):
            take(obs, start + i, offset, factor, work, plan[OBS] + i, lanes)
        for i in range(m, lanes):  # numbers left there by others could be slow ones
            for k in range(obs.shape[1]):
                work[plan[OBS] + k * lanes + i] = _ZERO
        forward(params, layers, plan, work, lanes)
        if task != BEST:
            v_at = layers[plan[VALUE], HIDDEN]
            value[start : start + m] = work[v_at : v_at + m]
        if task != VALUES:
            wide = outputs_by_row(params, layers, plan, work, m, lanes)
            at = plan[ROWS]
            outputs = work[at : at + m * wide].reshape((m, wide))
            gaussian = plan[GAUSSIAN] != 0
            mine = action[start : start + m]
            if task == SAMPLE:
                drawn = noise[start : start + m]
                sample_actions(outputs, drawn, gaussian, sizes, mine, logp[start : start + m])
            else:
                best_actions(outputs, gaussian, sizes, mine)
    return -1


@jit(_absent)
def gradient(
    params: Floats,
    layers: Ints,
    plan: Ints,
    sizes: Ints,
    offset: Floats,
    factor: Floats,
    work: Floats,
    obs: Floats,
    action: Array,
    logp: Floats,
    old_value: Floats,
    advantage: Floats,
    target: Floats,
    rows: Ints,
    scale: float,
    clip: float,
    value_clip: float,
    value_coef: float,
    entropy_coef: float,
    grad: Floats,
    stats: NDArray[np.float64],
) -> int:
    """Write the gradient of PPO's loss over some rows, and the sums of `ppo_loss`.

    Args:
        params: The flat vector; the next six are as in `act`.
        layers: See above.
        plan: See above.
        sizes: Of the `ActionHead`.
        offset: Of the normaliser.
        factor: Of the normaliser.
        work: See above.
        obs: [R, n_obs]; this and the next five are fields of a `Rollout`.
        action: [R, width].
        logp: [R].
        old_value: [R].
        advantage: [R].
        target: [R].
        rows: Which of the R rows, in the order in which they are added up.
        scale: This and the next four are `LossTerms`.
        clip: How far the ratio may leave 1.
        value_clip: How far the value may leave the old one.
        value_coef: What the value's loss counts.
        entropy_coef: What the entropy counts.
        grad: As long as the flat vector, is overwritten.
        stats: float64 [5], is overwritten.

    Returns:
        -1, or the first of `rows` that does not exist, or whose action does not, or BAD_SHAPES.
    """
    count = obs.shape[0]
    if obs.shape[1] != plan[N_OBS] or action.shape[0] != count or logp.size != count:
        return BAD_SHAPES
    if old_value.size != count or advantage.size != count or target.size != count:
        return BAD_SHAPES
    if action.shape[1] != plan[WIDTH] or grad.size != params.size or stats.size != 5:
        return BAD_SHAPES
    grad[:] = _ZERO
    stats[:] = 0.0
    policy, head = plan[POLICY], plan[VALUE]
    n_out = layers[policy, OUT]
    for start in range(0, rows.size, BLOCK):
        m = min(BLOCK, rows.size - start)
        lanes = (m + LANES - 1) // LANES * LANES
        mine = rows[start : start + m]
        for i in range(m):
            if mine[i] < 0 or mine[i] >= count:
                return start + i
            take(obs, mine[i], offset, factor, work, plan[OBS] + i, lanes)
        for i in range(m, lanes):
            for k in range(obs.shape[1]):
                work[plan[OBS] + k * lanes + i] = _ZERO
        forward(params, layers, plan, work, lanes)
        wide = outputs_by_row(params, layers, plan, work, m, lanes)
        at, v_at, dv_at = plan[ROWS], layers[head, HIDDEN], layers[head, DELTA]
        d_rows = work[at + BLOCK * wide : at + (BLOCK + m) * wide].reshape((m, wide))
        bad = ppo_loss(
            work[at : at + m * wide].reshape((m, wide)),
            work[v_at : v_at + m],
            mine,
            action,
            logp,
            old_value,
            advantage,
            target,
            plan[GAUSSIAN] != 0,
            sizes,
            scale,
            clip,
            value_clip,
            value_coef,
            entropy_coef,
            d_rows,
            work[dv_at : dv_at + m],
            stats,
        )
        if bad >= 0:
            return start + bad
        work[dv_at + m : dv_at + lanes] = _ZERO
        d_at = layers[policy, DELTA]
        for k in range(n_out):
            for i in range(m):
                work[d_at + k * lanes + i] = d_rows[i, k]
            for i in range(m, lanes):
                work[d_at + k * lanes + i] = _ZERO
        for k in range(n_out, wide):
            for i in range(m):
                grad[plan[LOG_STD] + k - n_out] += d_rows[i, k]
        backward(params, grad, layers, plan, work, m, lanes)
    return -1
