"""The layers of a network, forwards and backwards, as parts of compiled kernels.

    forward:   inputs in `kept` -> every layer's output, in `kept`
    backward:  derivatives w.r.t. the last layers -> derivatives w.r.t. all outputs, and grad

A block of up to 64 rows is stored feature by feature, [features, rows padded to a multiple of 16].
Then a layer multiplies torch's [out, in] weights without rearranging them, and narrow last layers
waste no lanes. Only the gradient of a layer's weights needs its input row by row, and transposes
it.

Arrays of numbers (made by `fused_plan`) describe a network:
    layers  int64 [L, 15]: one row per Linear layer, columns below
    plan    int64 [7]: entries below
Results go to two arrays of floats, at offsets in `layers` and `plan`:
    kept    data of one block that the backward pass needs
    work    temporary data
"""

import numpy as np
from numpy.typing import NDArray

from muster.nets.fused_activations import RELU, finish, through_end
from muster.nets.fused_norm import normalize, through_norm
from muster.nets.tile import inlined, multiply, noinline, part, transpose
from muster.nets.vector_code import LANES

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 64
"""Rows that are computed together; a multiple of LANES."""

COLUMNS = 15
(
    IN,
    OUT,
    WEIGHT,
    BIAS,
    END,
    SOURCE,
    FROM,
    HIDDEN,
    DELTA,
    NORM,
    NORM_BIAS,
    UNIT,
    BEFORE,
    SUMS,
    FIRST,
) = range(COLUMNS)
"""Columns of `layers`: widths; offsets of weight and bias in the parameters; the activation; the
layer that it reads (-1: the inputs), and the first feature that it reads of it; the offset of its
output in `kept`, and of the derivative w.r.t. the output in `work`; offsets of weight and bias of
its LayerNorm in the parameters (-1: none); the offset in `kept` of the normalised values,
[out, lanes], followed by their factors [lanes]; the offset in `kept` of the activation's input, if
it is needed; the offset in `work` of room for the sums of its LayerNorm; 1 if in the backward pass
it is the first to write the derivative w.r.t. its input.
"""
N_INPUTS, INPUTS, SCRATCH, ZERO, WANTED, N_WANTED, TO_INPUTS = range(7)
"""Entries of `plan`: numbers in an input; the offset of inputs in `kept`; the offset in `work` of
room for the gradient of weights, and of a 0; the first input whose derivative may be requested,
their number, and their offset in `work`, [n, lanes].
"""

_ZERO, _ONE = np.float32(0), np.float32(1)
_NO_FLOOR = np.float32(-np.inf)


def padded(n: int) -> int:
    """Return the room that n features followed by a 1 take."""
    return (n + LANES) // LANES * LANES


padded_in_kernels = inlined(padded)


@part
def source_of(layers: Ints, plan: Ints, n: int, lanes: int) -> int:
    """Return the offset in `kept` of the input of layer n."""
    source = layers[n, SOURCE]
    at: int = plan[INPUTS] if source < 0 else layers[source, HIDDEN]
    at += layers[n, FROM] * lanes
    return at


@part
def before_end(layers: Ints, n: int, kept: Floats, lanes: int) -> Floats:
    """Return the input of the activation of layer n, if it is kept; otherwise nothing."""
    at = layers[n, BEFORE]
    size = layers[n, OUT] * lanes if at >= 0 else at - at
    return kept[at : at + size]


@part
def forward(params: Floats, layers: Ints, plan: Ints, kept: Floats, lanes: int) -> None:
    """Compute every layer's output [out, lanes] from the inputs in `kept`."""
    noinline()
    one = lanes // lanes  # not a literal, see `multiply`
    for n in range(layers.shape[0]):
        n_in, n_out = layers[n, IN], layers[n, OUT]
        x_at, h_at, w_at = source_of(layers, plan, n, lanes), layers[n, HIDDEN], layers[n, WEIGHT]
        normed = layers[n, NORM] >= 0
        floor = _ZERO if layers[n, END] == RELU and not normed else _NO_FLOOR
        multiply(
            kept, h_at, lanes, params, w_at, n_in, one, kept, x_at, lanes, n_out, lanes, n_in,
            params, layers[n, BIAS], one, floor,
        )  # fmt: skip
        if normed:
            places = layers[n, NORM], layers[n, NORM_BIAS]
            normalize(params, kept, h_at, layers[n, UNIT], places[0], places[1], n_out, lanes)
        if normed or layers[n, END] != RELU:
            h = kept[h_at : h_at + n_out * lanes]
            finish(h, before_end(layers, n, kept, lanes), layers[n, END])


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
    zero_at: int,
    start_step: int,
) -> None:
    """Add a layer's gradient over m rows to `grad`: of weights [n_out, n_in], of biases [n_out].

    Args:
        grad: As long as the parameters.
        w_at: Offset of the layer's weights in it.
        b_at: Offset of the layer's biases in it.
        n_out: Outputs of the layer.
        n_in: Inputs of the layer.
        work: Holds the following.
        d_at: Offset of [n_out, lanes], the derivative w.r.t. the layer's output.
        lanes: Rows, with padding.
        x_at: Offset of [m, padded(n_in)], the layer's input, with a 1 after the last input: a bias
            is the weight of an input that is always 1.
        tile_at: Offset of room for [n_out, LANES].
        m: Rows.
        zero_at: Offset of a 0.
        start_step: -1 to add to `grad`, 0 to overwrite it.
    """
    one = lanes // lanes
    width = LANES * one
    x_row = padded_in_kernels(n_in)
    whole = n_in // LANES * LANES
    multiply(
        grad, w_at, n_in, work, d_at, lanes, one, work, x_at, x_row, n_out, whole, m,
        work, zero_at, start_step, _NO_FLOOR,
    )  # fmt: skip
    # The last columns would reach into the next row of the weights, so a tile buffers them.
    rest = n_in - whole
    if start_step < 0:
        for j in range(n_out):
            for k in range(rest):
                work[tile_at + j * LANES + k] = grad[w_at + j * n_in + whole + k]
            work[tile_at + j * LANES + rest] = grad[b_at + j]
    multiply(
        work, tile_at, width, work, d_at, lanes, one, work, x_at + whole, x_row, n_out, width, m,
        work, zero_at, start_step, _NO_FLOOR,
    )  # fmt: skip
    for j in range(n_out):
        for k in range(rest):
            grad[w_at + j * n_in + whole + k] = work[tile_at + j * LANES + k]
        grad[b_at + j] = work[tile_at + j * LANES + rest]


@part
def backward(
    params: Floats,
    grad: Floats,
    layers: Ints,
    plan: Ints,
    kept: Floats,
    work: Floats,
    m: int,
    lanes: int,
    adds: bool,
    to_inputs: bool,
) -> None:
    """Write the gradient to `grad`, unless empty; and that w.r.t. the inputs, if requested.

    Args:
        params: The flat parameter vector.
        grad: As long as `params`, or empty.
        layers: See above.
        plan: See above.
        kept: As written by `forward`.
        work: Holds the derivatives w.r.t. the last layers.
        m: Rows.
        lanes: Rows, with padding.
        adds: Whether to add to `grad`, which holds the sum of the previous blocks.
        to_inputs: Whether to compute derivatives w.r.t. inputs.
    """
    noinline()
    one = lanes // lanes
    zero_at = plan[ZERO]
    work[zero_at] = _ZERO
    grad_step = -one if adds else one - one
    scratch = plan[SCRATCH]
    transposed, transposed_from = np.int64(-2), np.int64(-1)  # the input that the scratch holds
    for n in range(layers.shape[0] - 1, -1, -1):
        n_in, n_out, source = layers[n, IN], layers[n, OUT], layers[n, SOURCE]
        d_at, h_at, size = layers[n, DELTA], layers[n, HIDDEN], n_out * lanes
        through_end(
            work[d_at : d_at + size],
            kept[h_at : h_at + size],
            before_end(layers, n, kept, lanes),
            layers[n, END],
        )
        if layers[n, NORM] >= 0:
            through_norm(
                params,
                grad,
                kept,
                work,
                d_at,
                layers[n, UNIT],
                layers[n, NORM],
                layers[n, NORM_BIAS],
                n_out,
                m,
                lanes,
                layers[n, SUMS],
                adds,
            )
        w_at = layers[n, WEIGHT]
        if grad.size:
            x_row = padded_in_kernels(n_in)
            if source != transposed or layers[n, FROM] != transposed_from:
                x_at = source_of(layers, plan, n, lanes)
                transpose(work, scratch, x_row, kept, x_at, lanes, x_row, lanes)
                for i in range(lanes):
                    work[scratch + i * x_row + n_in] = _ONE
                transposed, transposed_from = source, layers[n, FROM]
            weight_gradient(
                grad,
                w_at,
                layers[n, BIAS],
                n_out,
                n_in,
                work,
                d_at,
                lanes,
                scratch,
                scratch + lanes * x_row,
                m,
                zero_at,
                grad_step,
            )
        step = one - one if layers[n, FIRST] else -one
        if source >= 0:
            to = layers[source, DELTA] + layers[n, FROM] * lanes
            multiply(
                work, to, lanes, params, w_at, one, n_in, work, d_at, lanes, n_in, lanes, n_out,
                work, zero_at, step, _NO_FLOOR,
            )  # fmt: skip
        elif to_inputs:
            to, count = plan[TO_INPUTS], plan[N_WANTED]
            w_at += plan[WANTED]
            multiply(
                work, to, lanes, params, w_at, one, n_in, work, d_at, lanes, count, lanes, n_out,
                work, zero_at, step, _NO_FLOOR,
            )  # fmt: skip


LAYER_PARTS = (forward, finish, normalize, multiply)
"""One function of each file that a kernel of layers is compiled from (see `keep_with`)."""
