"""A layer of LSTM over whole sequences as compiled code, forwards and backwards.

    forward:   gates by the inputs [T * S, 4H] -> step by step: + W h -> outputs h, cells
    backward:  derivatives by outputs -> step by step, last first -> by gates, and of W

Rows are those of S sequences, one after the other in each step: row = t * S + sequence. A sequence
is a row of the product, and the gates are its columns: so few sequences waste nothing, and the bits
of one do not depend on the others. Widths are padded to a multiple of `LANES` (see `wide`).
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.fused_activations import sigmoid_of, tanh, tanh_of
from muster.nets.tile import LANES, absent, keep_with, multiply, noinline, part, transpose

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

_ZERO, _ONE = np.float32(0), np.float32(1)
_NO_FLOOR = np.float32(-np.inf)


def wide(n: int) -> int:
    """Return how much room a row of n numbers takes."""
    return -(-n // LANES) * LANES


@part
def _step(gates: Floats, cell_before: Floats, h: Floats, cell: Floats, width: int) -> None:
    """Turn what goes into the gates of one sequence into gates, cell and output."""
    noinline()
    for k in range(width):
        enter, stay = sigmoid_of(gates[k]), sigmoid_of(gates[width + k])
        leave, write = sigmoid_of(gates[2 * width + k]), tanh_of(gates[3 * width + k])
        gates[k], gates[width + k] = enter, stay
        gates[2 * width + k], gates[3 * width + k] = leave, write
        cell[k] = stay * cell_before[k] + enter * write
        h[k] = leave * tanh_of(cell[k])


@jit(absent)
def forward(
    weight: Floats,
    turned: Floats,
    state: Floats,
    first: Bools,
    gates: Floats,
    h_before: Floats,
    cell_before: Floats,
    h: Floats,
    cell: Floats,
) -> None:
    """Run S sequences of T steps.

    Args:
        weight: [4H * H], from the output before to the gates: input, forget, output, write.
        turned: [H * wide(4H)], is written: the same, turned round.
        state: [S, 2H] before the first step: output, then cell; is overwritten with that after the
            last.
        first: [T * S], where an episode begins: the state before it counts as zero.
        gates: [T * S, wide(4H)], by the inputs; is overwritten with the gates.
        h_before: [T * S, wide(H)], is written: the output before each step.
        cell_before: [T * S, H], is written: the cell before each step.
        h: [T * S, wide(H)], is written: the outputs.
        cell: [T * S, H], is written.
    """
    count, width = state.shape[0], cell.shape[1]
    four, h_row = gates.shape[1], h.shape[1]
    zero = count - count
    one = zero + 1
    if width % LANES:
        for i in range(4 * width):
            for k in range(width):
                turned[k * four + i] = weight[i * width + k]
    else:
        transpose(turned, zero, four, weight, zero, width, four, width)
    flat_gates, flat_before = gates.reshape(gates.size), h_before.reshape(h_before.size)
    for t in range(gates.shape[0] // count):
        begin = t * count
        for s in range(count):
            row = begin + s
            for k in range(width):
                if first[row]:
                    h_before[row, k] = cell_before[row, k] = _ZERO
                elif t == 0:
                    h_before[row, k], cell_before[row, k] = state[s, k], state[s, width + k]
                else:
                    h_before[row, k], cell_before[row, k] = h[row - count, k], cell[row - count, k]
        multiply(
            flat_gates, begin * four, four, flat_before, begin * h_row, h_row, one,
            turned, zero, four, count, four, width, turned, zero, -one, _NO_FLOOR,
        )  # fmt: skip
        for row in range(begin, begin + count):
            _step(gates[row], cell_before[row], h[row], cell[row], width)
    last = gates.shape[0] - count
    for s in range(count):
        for k in range(width):
            state[s, k], state[s, width + k] = h[last + s, k], cell[last + s, k]


@part
def _step_back(
    gates: Floats,
    cell_before: Floats,
    cell: Floats,
    d_h: Floats,
    d_h_after: Floats,
    d_cell: Floats,
    width: int,
) -> None:
    """Turn gates into derivatives by what went into them, and d_cell into that of the step before.

    `d_h_after` is what the step after adds to the derivative by the output.
    """
    noinline()
    for k in range(width):
        enter, stay = gates[k], gates[width + k]
        leave, write = gates[2 * width + k], gates[3 * width + k]
        out = tanh_of(cell[k])
        d_out = d_h[k] + d_h_after[k]
        d = d_out * leave * (_ONE - out * out) + d_cell[k]
        gates[k] = d * write * enter * (_ONE - enter)
        gates[width + k] = d * cell_before[k] * stay * (_ONE - stay)
        gates[2 * width + k] = d_out * out * leave * (_ONE - leave)
        gates[3 * width + k] = d * enter * (_ONE - write * write)
        d_cell[k] = d * stay


@jit(absent)
def backward(
    weight: Floats,
    padded: Floats,
    first: Bools,
    gates: Floats,
    h_before: Floats,
    cell_before: Floats,
    cell: Floats,
    d_h: Floats,
    d_h_after: Floats,
    d_cell: Floats,
    by_weight: Floats,
    grad: Floats,
) -> None:
    """Go back through what `forward` did.

    Args:
        weight: As in `forward`; so on for first, gates, h_before, cell_before and cell.
        padded: [4H * wide(H)], is written: the weights with room at the end of each row.
        first: See there.
        gates: What `forward` left; is overwritten with derivatives by what went into the gates.
        h_before: See there.
        cell_before: See there.
        cell: See there.
        d_h: [T * S, H], derivatives by the outputs.
        d_h_after: [S, wide(H)], is written.
        d_cell: [S, H], is written.
        by_weight: [4H * wide(H)], is written.
        grad: [4H * H], is overwritten with the gradient by the weights.
    """
    count, width = d_cell.shape
    four, h_row = gates.shape[1], h_before.shape[1]
    zero = count - count
    one = zero + 1
    for i in range(4 * width):
        for k in range(width):
            padded[i * h_row + k] = weight[i * width + k]
        for k in range(width, h_row):
            padded[i * h_row + k] = _ZERO
    d_h_after[:] = _ZERO
    d_cell[:] = _ZERO
    nothing = np.zeros(1, np.float32)
    flat_gates, flat_after = gates.reshape(gates.size), d_h_after.reshape(d_h_after.size)
    for t in range(gates.shape[0] // count - 1, -1, -1):
        begin = t * count
        for s in range(count):
            row = begin + s
            before, after = cell_before[row], cell[row]
            _step_back(gates[row], before, after, d_h[row], d_h_after[s], d_cell[s], width)
        multiply(
            flat_after, zero, h_row, flat_gates, begin * four, four, one,
            padded, zero, h_row, count, h_row, 4 * width, nothing, zero, zero, _NO_FLOOR,
        )  # fmt: skip
        for s in range(count):
            if first[begin + s]:
                d_h_after[s] = _ZERO
                d_cell[s] = _ZERO
    flat_before = h_before.reshape(h_before.size)
    multiply(
        by_weight, zero, h_row, flat_gates, zero, one, four,
        flat_before, zero, h_row, 4 * width, h_row, gates.shape[0], nothing, zero, zero, _NO_FLOOR,
    )  # fmt: skip
    for i in range(4 * width):
        for k in range(width):
            grad[i * width + k] = by_weight[i * h_row + k]


for _kernel in (forward, backward):
    keep_with(_kernel, multiply, tanh, jit)
