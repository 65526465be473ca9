"""A policy network as compiled code: act in one call, the gradient of a loss in one call.

    act:       obs -> [normalise] -> every layer -> outputs, value -> action, logp
    gradient:  rows of obs -> [normalise] -> every layer -> loss -> every layer backwards -> grad

Rows are processed in blocks, so that all of a block stays in the cache. `fused_layers` describes
the memory layout of a block, and `layers`, `plan`, `kept` and `work`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.fused_layers import (
    BLOCK,
    DELTA,
    HIDDEN,
    INPUTS,
    LAYER_PARTS,
    N_INPUTS,
    OUT,
    backward,
    forward,
    padded_in_kernels,
)
from muster.nets.normalizer import LIMIT, RunningNorm
from muster.nets.tile import absent, fill, keep_with, noinline, part, spread, transpose
from muster.nets.vector_code import LANES
from muster.rl_utils.illegal import ILLEGAL
from muster.rl_utils.losses.given_actions import logp_of_actions
from muster.rl_utils.losses.ppo import best_actions, ppo_loss, sample_actions
from muster.rl_utils.losses.q import explore_or_best, q_loss

Array = NDArray[Any]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

WIDTH, POLICY, VALUE, GAUSSIAN, LOG_STD, ROWS, Q = range(7)
"""Entries of `ends`: numbers in an action; the last layers of both nets (-1: the value is the best
output); 1 for a Gaussian, and the offset of its log_std in the parameters; the offset in `work` of
the outputs row by row, followed by their derivatives; 1 if outputs are values of actions.
"""

SAMPLE, BEST, VALUES, GIVEN = 0, 1, 2, 3
"""Tasks of `act`."""

BAD_SHAPES = -2
"""Returned when the shapes of arrays do not match."""

_ZERO = np.float32(0)
_ILLEGAL = np.float32(ILLEGAL)
_LIMIT = np.float32(LIMIT)


@part
def take(
    obs: Floats,
    rows: Ints,
    start: int,
    m: int,
    offset: Floats,
    factor: Floats,
    kept: Floats,
    at: int,
    lanes: int,
) -> None:
    """Write m observations as [n_obs, lanes], normalised if `offset` is not empty.

    They are rows[start:start + m] of `obs`; or, if `rows` is empty, start, start + 1, ...
    """
    noinline()
    for i in range(m):
        row = rows[start + i] if rows.size else start + i
        for k in range(obs.shape[1]):
            x = obs[row, k]
            if offset.size:
                x = (x - offset[k]) * factor[k]
                x = -_LIMIT if x < -_LIMIT else (_LIMIT if x > _LIMIT else x)
            kept[at + k * lanes + i] = x
    for k in range(obs.shape[1]):  # old values there could be denormals
        fill(kept, at + k * lanes + m, at + (k + 1) * lanes, _ZERO)


@part
def leave_out_illegal(
    mask: Floats, rows: Ints, start: int, m: int, kept: Floats, at: int, lanes: int
) -> None:
    """Write `ILLEGAL` to the outputs [K, lanes] at `at` where the mask of a row has a 0.

    Rows are numbered as in `take`.
    """
    noinline()
    for k in range(mask.shape[1]):
        for i in range(m):
            row = rows[start + i] if rows.size else start + i
            if mask[row, k] == _ZERO:
                kept[at + k * lanes + i] = _ILLEGAL


@part
def no_slope_where_illegal(
    mask: Floats, rows: Ints, start: int, m: int, work: Floats, at: int, lanes: int
) -> None:
    """Set the derivatives [K, lanes] at `at` to 0 where the mask of a row has a 0."""
    noinline()
    for k in range(mask.shape[1]):
        for i in range(m):
            row = rows[start + i] if rows.size else start + i
            if mask[row, k] == _ZERO:
                work[at + k * lanes + i] = _ZERO


@part
def outputs_by_row(
    params: Floats, layers: Ints, ends: Ints, kept: Floats, work: Floats, lanes: int
) -> int:
    """Write the outputs as rows [lanes, padded(K)] to ends[ROWS], return padded(K)."""
    noinline()
    n_out, h_at = layers[ends[POLICY], OUT], layers[ends[POLICY], HIDDEN]
    outputs = n_out
    if ends[GAUSSIAN]:
        outputs = 2 * n_out
        spread(kept, h_at + n_out * lanes, lanes, params, ends[LOG_STD], n_out)
    wide: int = padded_in_kernels(outputs)
    transpose(work, ends[ROWS], wide, kept, h_at, lanes, wide, lanes)
    return wide


@part
def best_output(layers: Ints, ends: Ints, kept: Floats, lanes: int, row: int) -> Any:
    """Return the highest output of a row; NaN if there is one."""
    n_out, at = layers[ends[POLICY], OUT], layers[ends[POLICY], HIDDEN] + row
    best = kept[at]
    for k in range(1, n_out):
        x = kept[at + k * lanes]
        if x > best or x != x:
            best = x
    return best


@jit(absent)
def act(
    params: Floats,
    layers: Ints,
    plan: Ints,
    ends: Ints,
    sizes: Ints,
    offset: Floats,
    factor: Floats,
    kept: Floats,
    work: Floats,
    task: int,
    obs: Floats,
    mask: Floats,
    noise: Floats,
    action: Array,
    logp: Floats,
    value: Floats,
) -> int:
    """Compute the network for n observations, and carry out `task`.

    Args:
        params: The flat parameter vector.
        layers: See above, as for plan, kept and work.
        plan: See above.
        ends: See above.
        sizes: Sizes of the `ActionHead`.
        offset: Offset of the normaliser; empty without one.
        factor: Factor of the normaliser; empty without one.
        kept: See above.
        work: See above.
        task: SAMPLE writes actions, logp and values, BEST only actions, VALUES only values, GIVEN
            reads actions and writes their logp and values.
        obs: [n, n_obs].
        mask: [n, outputs], 0 where an action is illegal; [0, 0] if all are legal.
        noise: [n, width].
        action: [n, width].
        logp: [n].
        value: [n].

    Returns:
        -1, or BAD_SHAPES, or the first row whose given action does not exist.
    """
    count = obs.shape[0]
    if obs.shape[1] != plan[N_INPUTS] or (task != BEST and value.size != count):
        return BAD_SHAPES
    if task != VALUES and (action.shape[0] != count or action.shape[1] != ends[WIDTH]):
        return BAD_SHAPES
    if task == SAMPLE and noise.shape != action.shape:
        return BAD_SHAPES
    if task != BEST and task != VALUES and logp.size != count:
        return BAD_SHAPES
    for start in range(0, count, BLOCK):
        m = min(BLOCK, count - start)
        lanes = (m + LANES - 1) // LANES * LANES
        take(obs, sizes[:0], start, m, offset, factor, kept, plan[INPUTS], lanes)
        forward(params, layers, plan, kept, lanes)
        leave_out_illegal(mask, sizes[:0], start, m, kept, layers[ends[POLICY], HIDDEN], lanes)
        if task != BEST:
            if ends[VALUE] < 0:
                for i in range(m):
                    value[start + i] = best_output(layers, ends, kept, lanes, i)
            else:
                v_at = layers[ends[VALUE], HIDDEN]
                for i in range(m):  # assigning a slice would take two seconds to compile
                    value[start + i] = kept[v_at + i]
        if task != VALUES:
            wide = outputs_by_row(params, layers, ends, kept, work, lanes)
            at = ends[ROWS]
            outputs = work[at : at + m * wide].reshape((m, wide))
            gaussian = ends[GAUSSIAN] != 0
            mine = action[start : start + m]
            if task == SAMPLE and ends[Q]:
                n_out = layers[ends[POLICY], OUT]
                explore_or_best(outputs[:, :n_out], noise[start : start + m], mine)
                for i in range(start, start + m):
                    logp[i] = _ZERO
            elif task == SAMPLE:
                drawn = noise[start : start + m]
                sample_actions(outputs, drawn, gaussian, sizes, mine, logp[start : start + m])
            elif task == GIVEN:
                bad = logp_of_actions(outputs, mine, gaussian, sizes, logp[start : start + m])
                if bad >= 0:
                    return start + bad
            else:
                best_actions(outputs, gaussian, sizes, mine)
    return -1


@jit(absent)
def gradient(
    params: Floats,
    layers: Ints,
    plan: Ints,
    ends: Ints,
    sizes: Ints,
    offset: Floats,
    factor: Floats,
    kept: Floats,
    work: Floats,
    obs: Floats,
    mask: Floats,
    taken: bool,
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
    """Write the gradient of `ppo_loss` or `q_loss` over some rows, and the sums of the loss.

    Args:
        params: The flat parameter vector; the next eight are as in `act`.
        layers: See above.
        plan: See above.
        ends: See above.
        sizes: Sizes of the `ActionHead`.
        offset: Offset of the normaliser.
        factor: Factor of the normaliser.
        kept: See above.
        work: See above.
        obs: [R, n_obs], of all rows; or, if `taken`, of `rows` only.
        mask: As many rows as `obs`, see `act`.
        taken: Whether `obs` and `mask` hold only `rows`.
        action: [R, width]; this and the next four are fields of a `Rollout`.
        logp: [R].
        old_value: [R].
        advantage: [R].
        target: [R].
        rows: Which of the R rows, in the order of summation.
        scale: This and the next four are `LossTerms`; `q_loss` uses only this one.
        clip: How far the ratio may leave 1.
        value_clip: How far the value may leave the old one.
        value_coef: Weight of the value loss.
        entropy_coef: Weight of the entropy.
        grad: As long as the flat vector, overwritten.
        stats: float64 [5], overwritten; with `q_loss` only the first three.

    Returns:
        -1, or the first of `rows` that does not exist, or whose action does not, or BAD_SHAPES.
    """
    count = logp.size
    wanted = rows.size if taken else count
    if obs.shape[1] != plan[N_INPUTS] or action.shape[0] != count or obs.shape[0] != wanted:
        return BAD_SHAPES
    if old_value.size != count or advantage.size != count or target.size != count:
        return BAD_SHAPES
    if action.shape[1] != ends[WIDTH] or grad.size != params.size or stats.size != 5:
        return BAD_SHAPES
    if not rows.size:
        fill(grad, rows.size, grad.size, _ZERO)
    for i in range(5):
        stats[i] = 0.0
    policy, head = ends[POLICY], ends[VALUE]
    n_out = layers[policy, OUT]
    for start in range(0, rows.size, BLOCK):
        m = min(BLOCK, rows.size - start)
        lanes = (m + LANES - 1) // LANES * LANES
        for i in range(start, start + m):
            if rows[i] < 0 or rows[i] >= count:
                return i
        given = rows[:0] if taken else rows
        take(obs, given, start, m, offset, factor, kept, plan[INPUTS], lanes)
        forward(params, layers, plan, kept, lanes)
        leave_out_illegal(mask, given, start, m, kept, layers[policy, HIDDEN], lanes)
        wide = outputs_by_row(params, layers, ends, kept, work, lanes)
        at = ends[ROWS]
        d_rows = work[at + BLOCK * wide : at + (BLOCK + m) * wide].reshape((m, wide))
        bad = -1
        if ends[Q]:
            bad = q_loss(
                work[at : at + m * wide].reshape((m, wide))[:, :n_out],
                rows[start : start + m],
                action,
                target,
                scale,
                d_rows[:, :n_out],
                stats[:3],
            )
        else:
            v_at, dv_at = layers[head, HIDDEN], layers[head, DELTA]
            bad = ppo_loss(
                work[at : at + m * wide].reshape((m, wide)),
                kept[v_at : v_at + m],
                rows[start : start + m],
                action,
                logp,
                old_value,
                advantage,
                target,
                ends[GAUSSIAN] != 0,
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
            fill(work, dv_at + m, dv_at + lanes, _ZERO)
        if bad >= 0:
            return start + bad
        d_at = layers[policy, DELTA]
        fill(work, at + (BLOCK + m) * wide, at + (BLOCK + lanes) * wide, _ZERO)
        transpose(work, d_at, lanes, work, at + BLOCK * wide, wide, lanes, wide)
        no_slope_where_illegal(mask, given, start, m, work, d_at, lanes)
        if ends[GAUSSIAN]:
            for k in range(n_out):
                total = grad[ends[LOG_STD] + k] if start else _ZERO
                for i in range(m):
                    total += work[d_at + (n_out + k) * lanes + i]
                grad[ends[LOG_STD] + k] = total
        backward(params, grad, layers, plan, kept, work, m, lanes, start > 0, False)
    return -1


for _kernel in (act, gradient):
    keep_with(_kernel, *LAYER_PARTS, ppo_loss, q_loss, logp_of_actions, RunningNorm.forward, jit)
