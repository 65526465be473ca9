"""Networks without a loss as compiled code: outputs of a batch, and the gradient of weights.

    outputs:   rows -> [block by block] every layer -> outputs; keeps data for the backward pass
    gradient:  derivatives w.r.t. outputs -> every layer backwards -> grad, or w.r.t. inputs

Rows come from two arrays side by side: observations, and optionally actions. `heads` lists the last
layers, whose outputs are concatenated; with `dueling`, two of them, the value V and advantages A,
form one output V + A - mean(A).

Each kernel exists twice. One keeps the GIL, for calls of microseconds: with another busy thread it
would take milliseconds to get the GIL back. The other releases it, for threads that share a batch.
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
    N_WANTED,
    OUT,
    TO_INPUTS,
    backward,
    forward,
)
from muster.nets.tile import absent, fill, keep_with, noinline, part
from muster.nets.vector_code import LANES

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ZERO, _ONE = np.float32(0), np.float32(1)


@part
def put_inputs(rows: Floats, start: int, m: int, kept: Floats, at: int, lanes: int) -> None:
    """Write m rows from `start` on as [features, lanes], the padding as 0."""
    noinline()
    for k in range(rows.shape[1]):
        place = at + k * lanes
        for i in range(m):
            kept[place + i] = rows[start + i, k]
        fill(kept, place + m, place + lanes, _ZERO)


@part
def take_outputs(
    layers: Ints, heads: Ints, dueling: bool, kept: Floats, lanes: int, out: Floats, start: int
) -> None:
    """Write the outputs of a block to the rows of `out` from `start` on."""
    noinline()
    m = min(BLOCK, out.shape[0] - start)
    if dueling:
        v_at, a_at = layers[heads[0], HIDDEN], layers[heads[1], HIDDEN]
        share = _ONE / np.float32(out.shape[1])
        for i in range(m):
            mean = _ZERO
            for k in range(out.shape[1]):
                mean += kept[a_at + k * lanes + i]
            base = kept[v_at + i] - mean * share
            for k in range(out.shape[1]):
                out[start + i, k] = base + kept[a_at + k * lanes + i]
        return
    column = start - start
    for head in heads:
        at = layers[head, HIDDEN]
        for k in range(layers[head, OUT]):
            for i in range(m):
                out[start + i, column] = kept[at + k * lanes + i]
            column += 1


@part
def put_derivatives(
    layers: Ints, heads: Ints, dueling: bool, d_out: Floats, start: int, work: Floats, lanes: int
) -> None:
    """Write the derivatives w.r.t. the outputs of a block to the place that `backward` reads."""
    noinline()
    m = min(BLOCK, d_out.shape[0] - start)
    for head in heads:
        at = layers[head, DELTA]
        fill(work, at, at + layers[head, OUT] * lanes, _ZERO)
    if dueling:
        v_at, a_at = layers[heads[0], DELTA], layers[heads[1], DELTA]
        share = _ONE / np.float32(d_out.shape[1])
        for i in range(m):
            total = _ZERO
            for k in range(d_out.shape[1]):
                total += d_out[start + i, k]
            work[v_at + i] = total
            for k in range(d_out.shape[1]):
                work[a_at + k * lanes + i] = d_out[start + i, k] - total * share
        return
    column = start - start
    for head in heads:
        at = layers[head, DELTA]
        for k in range(layers[head, OUT]):
            for i in range(m):
                work[at + k * lanes + i] = d_out[start + i, column]
            column += 1


@part
def compute(
    params: Floats,
    layers: Ints,
    plan: Ints,
    heads: Ints,
    dueling: bool,
    kept: NDArray[np.float32],
    obs: Floats,
    beside: Floats,
    out: Floats,
) -> None:
    """Like `outputs`, for other kernels."""
    noinline()
    count = out.shape[0]
    for block in range((count + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        m = min(BLOCK, count - start)
        lanes = (m + LANES - 1) // LANES * LANES
        mine = kept[block % kept.shape[0]]
        put_inputs(obs, start, m, mine, plan[INPUTS], lanes)
        if beside.shape[1]:
            put_inputs(beside, start, m, mine, plan[INPUTS] + obs.shape[1] * lanes, lanes)
        forward(params, layers, plan, mine, lanes)
        take_outputs(layers, heads, dueling, mine, lanes, out, start)


@part
def compute_gradient(
    params: Floats,
    layers: Ints,
    plan: Ints,
    heads: Ints,
    dueling: bool,
    kept: NDArray[np.float32],
    work: Floats,
    d_out: Floats,
    grad: Floats,
    d_in: Floats,
) -> None:
    """Like `gradient`, for other kernels."""
    noinline()
    count = d_out.shape[0]
    for block in range((count + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        m = min(BLOCK, count - start)
        lanes = (m + LANES - 1) // LANES * LANES
        put_derivatives(layers, heads, dueling, d_out, start, work, lanes)
        to_inputs = d_in.size > 0
        backward(params, grad, layers, plan, kept[block], work, m, lanes, block > 0, to_inputs)
        if to_inputs:
            for k in range(plan[N_WANTED]):
                for i in range(m):
                    d_in[start + i, k] = work[plan[TO_INPUTS] + k * lanes + i]


@jit(absent)
def outputs(
    params: Floats,
    layers: Ints,
    plan: Ints,
    heads: Ints,
    dueling: bool,
    kept: NDArray[np.float32],
    obs: Floats,
    beside: Floats,
    out: Floats,
) -> None:
    """Compute the network for n rows.

    Args:
        params: The flat parameter vector.
        layers: See `fused_layers`, as for plan.
        plan: See there.
        heads: See above.
        dueling: See above.
        kept: [blocks, room]: a row for each block of rows; or one, if there is no backward pass.
        obs: [n, numbers].
        beside: [n, numbers] that follow them; [n, 0] for none.
        out: [n, outputs], output.
    """
    compute(params, layers, plan, heads, dueling, kept, obs, beside, out)


@jit(absent)
def gradient(
    params: Floats,
    layers: Ints,
    plan: Ints,
    heads: Ints,
    dueling: bool,
    kept: NDArray[np.float32],
    work: Floats,
    d_out: Floats,
    grad: Floats,
    d_in: Floats,
) -> None:
    """Write the gradient of sum(d_out * outputs), from the data in `kept`.

    Args:
        params: The flat parameter vector; the next five are as in `outputs`.
        layers: See there.
        plan: See there.
        heads: See there.
        dueling: See there.
        kept: As written by `outputs`.
        work: See `fused_layers`.
        d_out: [n, outputs].
        grad: As long as the flat vector: the part of these layers is overwritten. Empty if it is
            not needed.
        d_in: [n, wanted inputs], output. Empty if it is not needed.
    """
    compute_gradient(params, layers, plan, heads, dueling, kept, work, d_out, grad, d_in)


@jit(absent, releases_lock=True)
def outputs_beside(*network: Any) -> None:
    """Like `outputs`, without the GIL."""
    compute(*network)


@jit(absent, releases_lock=True)
def gradient_beside(*network: Any) -> None:
    """Like `gradient`, without the GIL."""
    compute_gradient(*network)


for _kernel in (outputs, gradient, outputs_beside, gradient_beside):
    keep_with(_kernel, *LAYER_PARTS, jit)
