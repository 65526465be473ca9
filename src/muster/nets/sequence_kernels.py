"""An LSTM or GRU layer and the heads after it, over whole sequences, as compiled code.

    step by step: [1, inputs, h] -> gates -> cell, h; then h of all steps -> heads

The backward pass is in `sequence_back_kernels`.

Sequences come in groups of equal size, the slots, and rows are stored group by group: row = (group
* T + t) * S + sequence. A step is one product for the sequences of all groups, copied side by side;
only the gradient of the weights is summed group by group. A sequence is a row of each product, so
its bits do not depend on the others, and the bits of a group's gradient not on other groups.

Widths are padded to a multiple of `LANES`, and so is each part of a cell (see `cell_kernels`). The
padding is initially 0, and stays 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.cell_kernels import (
    CELL_PARTS,
    GATES,
    LSTM,
    PARTS,
    gru_step,
    lstm_step,
)
from muster.nets.flat import aligned
from muster.nets.tile import absent, keep_with, multiply, noinline, part, transpose
from muster.nets.vector_code import LANES

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PLACES = 12
(
    KIND,
    INPUTS,
    WIDTH,
    BY_INPUTS,
    BIAS,
    RECURRENT,
    RECURRENT_BIAS,
    OUTPUTS,
    POLICY,
    POLICY_BIAS,
    VALUE,
    VALUE_BIAS,
) = range(PLACES)
"""Entries of `net`: the kind of cell; numbers in an input; the cell's width; offsets in the
parameters of the weights and biases of inputs, the recurrent weights, and (GRU) the bias of the
recurrent part of new; outputs of the policy; offsets of weights and biases of the policy and of the
value (-1: none).
"""

_ZERO = np.float32(0)
_NO_FLOOR = np.float32(-np.inf)


def wide(n: int) -> int:
    """Return the room that a row of n numbers takes."""
    return -(-n // LANES) * LANES


class Room(NamedTuple):
    """Data for the backward pass, and temporary data; R rows, S sequences."""

    x: Floats
    """[R, wide(1 + inputs)]: a 1, and the inputs."""
    before: Floats
    """[R, wide(width)]: the output before each step."""
    gates: Floats
    """[R, 4 * wide(width)]: gates; later the derivatives w.r.t. their inputs."""
    cell_before: Floats
    """[R, wide(width)] of an LSTM, like the next two."""
    cell: Floats
    out: Floats
    """The tanh of the cell."""
    h: Floats
    """[R, wide(width + 1)]: outputs, and a 1 after them."""
    made: Floats
    """[R, wide(heads)]: the value, if there is one, then outputs of the policy; later derivatives
    by them."""
    d_h: Floats
    """[R, wide(width)]."""
    now: Floats
    """[wide(S), 4 * wide(width)]: gates of all sequences in one step."""
    read: Floats
    """[S, 2 + inputs + width]: their inputs: 1, inputs, 1 again for a GRU, the previous output."""
    d_after: Floats
    """[S, wide(width)]."""
    d_cell: Floats
    """[S, wide(width)]."""
    turned: Floats
    """[2 + inputs + width, 4 * wide(width)]: the weights of `read`."""
    heads: Floats
    """[width, wide(heads)]: weights, transposed."""
    bias: Floats
    """[wide(heads)]."""
    padded: Floats
    """[4 * wide(width), wide(inputs or width)]: weights of all parts, padded."""
    heads_padded: Floats
    """[heads, wide(width)]."""
    sums: Floats
    """[4 * wide(width) or heads, wide(inputs + 1 or width + 1)]: a gradient of weights."""
    lanes: Floats
    """[4 * wide(width) + inputs + width, wide(S)], for a single step: gates, then their inputs."""


def make_room(net: Ints, rows: int, sequences: int) -> Room:
    """Return new arrays for this many rows and sequences."""
    inputs, width = int(net[INPUTS]), int(net[WIDTH])
    heads = int(net[OUTPUTS] + (net[VALUE] >= 0))
    row, four, of_cell = wide(width), PARTS * wide(width), rows if net[KIND] == LSTM else 0
    room = Room(
        x=aligned(rows, wide(1 + inputs)),
        before=aligned(rows, row),
        gates=aligned(rows, four),
        cell_before=aligned(of_cell, row),
        cell=aligned(of_cell, row),
        out=aligned(of_cell, row),
        h=aligned(rows, wide(width + 1)),
        made=aligned(rows, wide(heads)),
        d_h=aligned(rows, row),
        now=aligned(wide(sequences), four),
        read=aligned(sequences, 2 + inputs + width),
        d_after=aligned(sequences, row),
        d_cell=aligned(sequences, row),
        turned=aligned(2 + inputs + width, four),
        heads=aligned(width, wide(heads)),
        bias=aligned(wide(heads)),
        padded=aligned(four, wide(max(inputs, width))),
        heads_padded=aligned(heads, row),
        sums=aligned(max(four, heads), wide(max(inputs, width) + 1)),
        lanes=aligned(four + inputs + width, wide(sequences) if rows == sequences else 0),
    )
    room.x[:, 0] = 1
    room.h[:, width] = 1
    room.read[:, 0] = 1
    room.read[:, 1 + inputs] = 1  # an LSTM overwrites it
    return room


@part
def part_of(kind: int, gate: int) -> int:
    """Return the part of a row of gates that a gate's inputs go to; new of a GRU is the last."""
    return gate if kind == LSTM or gate < 2 else gate + 1


@part
def _turn(to: Floats, at: int, row: int, params: Floats, w_at: int, n_out: int, n_in: int) -> None:
    """Write weights [n_out, n_in] transposed, [n_in, n_out]."""
    noinline()
    if n_out % LANES == 0 and n_in % LANES == 0:
        transpose(to, at, row, params, w_at, n_in, n_out, n_in)
        return
    for i in range(n_out):
        for k in range(n_in):
            to[at + k * row + i] = params[w_at + i * n_in + k]


@part
def _turn_cell(params: Floats, net: Ints, turned: Floats) -> None:
    """Write the weights of a cell and its biases as rows, in the order of `read`."""
    noinline()
    kind, inputs, width, four = net[KIND], net[INPUTS], net[WIDTH], turned.shape[1]
    row, flat = four // PARTS, turned.reshape(-1)
    gates = GATES[0] if kind == LSTM else GATES[1]
    h_at = 1 + inputs if kind == LSTM else 2 + inputs
    for gate in range(gates):
        to = part_of(kind, gate) * row
        for k in range(width):
            turned[0, to + k] = params[net[BIAS] + gate * width + k]
        at = net[BY_INPUTS] + gate * width * inputs
        _turn(flat, four + to, four, params, at, width, inputs)
        at = net[RECURRENT] + gate * width * width
        _turn(flat, h_at * four + gate * row, four, params, at, width, width)
    if kind != LSTM:
        for k in range(width):
            turned[1 + inputs, 2 * row + k] = params[net[RECURRENT_BIAS] + k]


@part
def _turn_heads(params: Floats, net: Ints, heads: Floats, bias: Floats) -> None:
    """Write the weights of the heads transposed, and their biases."""
    noinline()
    width, row, flat = net[WIDTH], heads.shape[1], heads.reshape(-1)
    zero = width - width
    first = zero
    if net[VALUE] >= 0:
        _turn(flat, zero, row, params, net[VALUE], zero + 1, width)
        bias[0] = params[net[VALUE_BIAS]]
        first += 1
    _turn(flat, first, row, params, net[POLICY], net[OUTPUTS], width)
    for k in range(net[OUTPUTS]):
        bias[first + k] = params[net[POLICY_BIAS] + k]


@part
def copy(to: Floats, at: int, x: Floats, x_at: int, count: int) -> None:
    """to[at : at + count] = x[x_at : x_at + count]."""
    noinline()
    for k in range(count):
        to[at + k] = x[x_at + k]


@part
def _recall(
    before: Floats, begins: bool, t: int, state: Floats, at: int, past: Floats, width: int
) -> None:
    """Write the values before a step: zeros, the state from `at` on, or those of the last step."""
    noinline()
    zero = width - width
    if begins:
        for k in range(width):
            before[k] = _ZERO
    elif t == 0:
        copy(before, zero, state, at, width)
    else:
        copy(before, zero, past, zero, width)


@part
def _gates(net: Ints, now: Floats, read: Floats, turned: Floats) -> None:
    """Compute the gates' inputs of all sequences in one step, as a product."""
    noinline()
    count, four, depth = read.shape[0], now.shape[1], read.shape[1]
    row, inputs, width = four // PARTS, net[INPUTS], net[WIDTH]
    zero, zeros = count - count, np.zeros(1, np.float32)
    c, a, b = now.reshape(-1), read.reshape(-1), turned.reshape(-1)
    if net[KIND] == LSTM:
        multiply(
            c, zero, four, a, zero, depth, zero + 1, b, zero, four,
            count, four, 1 + inputs + width, zeros, zero, zero, _NO_FLOOR,
        )  # fmt: skip
        return
    multiply(
        c, zero, four, a, zero, depth, zero + 1, b, zero, four,
        count, 2 * row, 2 + inputs + width, zeros, zero, zero, _NO_FLOOR,
    )  # fmt: skip
    by_h, by_x = 1 + inputs, zero
    multiply(
        c, 2 * row, four, a, by_h, depth, zero + 1, b, by_h * four + 2 * row, four,
        count, row, 1 + width, zeros, zero, zero, _NO_FLOOR,
    )  # fmt: skip
    multiply(
        c, 3 * row, four, a, by_x, depth, zero + 1, b, 3 * row, four,
        count, row, 1 + inputs, zeros, zero, zero, _NO_FLOOR,
    )  # fmt: skip


@part
def _gates_once(params: Floats, net: Ints, now: Floats, read: Floats, lanes: Floats) -> None:
    """Like `_gates`, with weights in place: for one step it does not pay to transpose them."""
    noinline()
    kind, inputs, width, row = net[KIND], net[INPUTS], net[WIDTH], now.shape[1] // PARTS
    count, flat, four = lanes.shape[1], lanes.reshape(-1), now.shape[1]
    zero, one = kind - kind, kind - kind + 1
    h_at = 1 + inputs if kind == LSTM else 2 + inputs
    for s in range(read.shape[0]):
        for k in range(inputs):
            lanes[four + k, s] = read[s, 1 + k]
        for k in range(width):
            lanes[four + inputs + k, s] = read[s, h_at + k]
    for gate in range(GATES[0] if kind == LSTM else GATES[1]):
        to = part_of(kind, gate) * row * count
        multiply(
            flat, to, count, params, net[BY_INPUTS] + gate * width * inputs, inputs, one,
            flat, four * count, count, width, count, inputs,
            params, net[BIAS] + gate * width, one, _NO_FLOOR,
        )  # fmt: skip
        begin, at = -one, zero
        if part_of(kind, gate) != gate:
            begin, at, to = one, net[RECURRENT_BIAS], gate * row * count
        multiply(
            flat, to, count, params, net[RECURRENT] + gate * width * width, width, one,
            flat, (four + inputs) * count, count, width, count, width,
            params, at, begin, _NO_FLOOR,
        )  # fmt: skip
    transpose(now.reshape(-1), zero, four, flat, zero, count, four, count)


@part
def _heads(net: Ints, h: Floats, heads: Floats, bias: Floats, made: Floats) -> None:
    """Write the outputs of the heads for all outputs of the cell."""
    noinline()
    row = made.shape[1]
    zero = row - row
    for i in range(made.shape[0]):
        copy(made[i], zero, bias, zero, row)
    multiply(
        made.reshape(-1), zero, row, h.reshape(-1), zero, h.shape[1], zero + 1,
        heads.reshape(-1), zero, row, made.shape[0], row, net[WIDTH], bias, zero, zero - 1,
        _NO_FLOOR,
    )  # fmt: skip


@jit(absent)
def forward(
    params: Floats, net: Ints, room: Room, state: Floats, first: Bools, groups: int
) -> None:
    """Run S sequences of T steps, and the heads on their outputs.

    Args:
        params: The flat parameter vector.
        net: See `PLACES`.
        room: `x` is read, with its rows group by group; the results are in `made`.
        state: [S, width or 2 * width] before the first step: output, then the cell of an LSTM;
            overwritten with the state after the last step.
        first: [T * S], where an episode begins: the state before it counts as zero.
        groups: Number of groups of sequences.
    """
    x, before, gates, cell_before, cell, out, h = room[:7]
    now, read = room.now, room.read
    count, width, inputs, is_lstm = state.shape[0], net[WIDTH], net[INPUTS], net[KIND] == LSTM
    zero = count - count
    h_at = 1 + inputs if is_lstm else 2 + inputs
    _turn_heads(params, net, room.heads, room.bias)
    each, steps = count // groups, x.shape[0] // count
    if steps > 1:
        _turn_cell(params, net, room.turned)
    for t in range(steps):
        for s in range(count):
            row = (s // each * steps + t) * each + s % each
            past = row if t == 0 else row - each
            _recall(before[row], first[row], t, state[s], zero, h[past], width)
            copy(read[s], zero, x[row], zero, 1 + inputs)
            copy(read[s], h_at, before[row], zero, width)
            if is_lstm:
                _recall(cell_before[row], first[row], t, state[s], width, cell[past], width)
        if steps > 1:
            _gates(net, now, read, room.turned)
        else:
            _gates_once(params, net, now, read, room.lanes)
        for s in range(count):
            row = (s // each * steps + t) * each + s % each
            if is_lstm:
                lstm_step(now[s], gates[row], cell_before[row], cell[row], out[row], h[row], width)
            else:
                gru_step(now[s], gates[row], before[row], h[row], width)
    for s in range(count):
        row = (s // each * steps + steps - 1) * each + s % each
        copy(state[s], zero, h[row], zero, width)
        if is_lstm:
            copy(state[s], width, cell[row], zero, width)
    _heads(net, h, room.heads, room.bias, room.made)


keep_with(forward, multiply, *CELL_PARTS, jit)
