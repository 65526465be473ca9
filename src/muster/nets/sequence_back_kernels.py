"""The backward pass of `sequence_kernels.forward`, as compiled code.

    d_heads -> step by step, last first: d_gates, d_h of the step before -> weights, inputs

Steps go back for the sequences of all groups together; weights are summed group by group.
"""

import numpy as np

from muster.jit import jit
from muster.nets.cell_kernels import CELL_PARTS, GATES, LSTM, PARTS, gru_step_back, lstm_step_back
from muster.nets.sequence_kernels import (
    BIAS,
    BY_INPUTS,
    INPUTS,
    KIND,
    OUTPUTS,
    POLICY,
    POLICY_BIAS,
    RECURRENT,
    RECURRENT_BIAS,
    VALUE,
    VALUE_BIAS,
    WIDTH,
    Bools,
    Floats,
    Ints,
    Room,
    copy,
    forward,
    part_of,
)
from muster.nets.tile import absent, keep_with, multiply, noinline, part
from muster.nets.vector_code import LANES

_ZERO = np.float32(0)
_NO_FLOOR = np.float32(-np.inf)


@part
def _pad_parts(
    params: Floats, at: int, net: Ints, padded: Floats, n_in: int, by_inputs: bool
) -> None:
    """Write the weights of all gates, [gates * width, n_in], with each row and part padded."""
    noinline()
    kind, width, row, zero = net[KIND], net[WIDTH], padded.shape[0] // PARTS, n_in - n_in
    for i in range(padded.shape[0]):
        for k in range(padded.shape[1]):
            padded[i, k] = _ZERO
    for gate in range(GATES[0] if kind == LSTM else GATES[1]):
        to = (part_of(kind, gate) if by_inputs else gate) * row
        for i in range(width):
            copy(padded[to + i], zero, params, at + (gate * width + i) * n_in, n_in)


@part
def _through_heads(params: Floats, net: Ints, made: Floats, heads: Floats, d_h: Floats) -> None:
    """Write derivatives w.r.t. the outputs, from those w.r.t. the heads."""
    noinline()
    width = net[WIDTH]
    zero, zeros = width - width, np.zeros(1, np.float32)
    first = zero
    if net[VALUE] >= 0:
        copy(heads[0], zero, params, net[VALUE], width)
        first += 1
    for i in range(net[OUTPUTS]):
        copy(heads[first + i], zero, params, net[POLICY] + i * width, width)
    row = d_h.shape[1]
    multiply(
        d_h.reshape(-1), zero, row, made.reshape(-1), zero, made.shape[1], zero + 1,
        heads.reshape(-1), zero, row, d_h.shape[0], row, first + net[OUTPUTS],
        zeros, zero, zero, _NO_FLOOR,
    )  # fmt: skip


@part
def _sum_products(
    to: Floats, to_at: int, row: int, a: Floats, column: int, count: int, b: Floats, first: int,
    last: int,
) -> None:  # fmt: skip
    """to[count, columns of B] = A[first:last, column : column + count].T @ B[first:last]."""
    noinline()
    zero, zeros = first - first, np.zeros(1, np.float32)
    a_row, b_row = a.shape[1], b.shape[1]
    multiply(
        to, to_at, row, a.reshape(-1), first * a_row + column, zero + 1, a_row,
        b.reshape(-1), first * b_row, b_row, count, b_row, last - first,
        zeros, zero, zero, _NO_FLOOR,
    )  # fmt: skip


@part
def _recurrent_of_group(
    net: Ints, gates: Floats, before: Floats, sums: Floats, first: int, last: int, grad: Floats
) -> None:
    """Write the gradient of the recurrent weights over the rows of one group."""
    noinline()
    kind, width, row = net[KIND], net[WIDTH], before.shape[1]
    zero, flat, at = kind - kind, sums.reshape(-1), net[RECURRENT]
    parts = zero + (GATES[0] if kind == LSTM else GATES[1])
    if width == row:
        _sum_products(grad, at, row, gates, zero, parts * row, before, first, last)
    else:
        _sum_products(flat, zero, row, gates, zero, parts * row, before, first, last)
        for gate in range(parts):
            for i in range(width):
                from_row = (gate * row + i) * row
                copy(grad, at + (gate * width + i) * width, flat, from_row, width)
    if kind != LSTM:
        for k in range(width):
            grad[net[RECURRENT_BIAS] + k] = _ZERO
        for i in range(first, last):
            for k in range(width):
                grad[net[RECURRENT_BIAS] + k] += gates[i, 2 * row + k]


@part
def _others_of_group(net: Ints, room: Room, first: int, last: int, grad: Floats) -> None:
    """Write the gradient of the weights of inputs and heads over the rows of one group."""
    noinline()
    kind, inputs, width, row = net[KIND], net[INPUTS], net[WIDTH], room.before.shape[1]
    zero, x_row, h_row, sums = kind - kind, room.x.shape[1], room.h.shape[1], room.sums.reshape(-1)
    for gate in range(GATES[0] if kind == LSTM else GATES[1]):
        column = part_of(kind, gate) * row
        _sum_products(sums, zero, x_row, room.gates, column, width, room.x, first, last)
        for i in range(width):
            grad[net[BIAS] + gate * width + i] = sums[i * x_row]
            to = net[BY_INPUTS] + (gate * width + i) * inputs
            copy(grad, to, sums, i * x_row + 1, inputs)
    policy = zero + 1 if net[VALUE] >= 0 else zero
    heads = policy + net[OUTPUTS]
    _sum_products(sums, zero, h_row, room.made, zero, heads, room.h, first, last)
    for i in range(heads):
        weight, bias, n = net[POLICY], net[POLICY_BIAS], i - policy
        if i < policy:
            weight, bias, n = net[VALUE], net[VALUE_BIAS], zero
        copy(grad, weight + n * width, sums, i * h_row, width)
        grad[bias + n] = sums[i * h_row + width]


@part
def _to_inputs(params: Floats, net: Ints, room: Room, d_x: Floats) -> None:
    """Write derivatives w.r.t. the inputs. Overwrites `room.sums` and `room.padded`."""
    noinline()
    rows, four, inputs, row = d_x.shape[0], room.gates.shape[1], net[INPUTS], room.padded.shape[1]
    zero, zeros = rows - rows, np.zeros(1, np.float32)
    _pad_parts(params, net[BY_INPUTS], net, room.padded, inputs, True)
    columns = (inputs + LANES - 1) // LANES * LANES
    made = np.empty((rows, columns), np.float32)
    multiply(
        made.reshape(-1), zero, columns, room.gates.reshape(-1), zero, four, zero + 1,
        room.padded.reshape(-1), zero, row, rows, columns, four, zeros, zero, zero, _NO_FLOOR,
    )  # fmt: skip
    for i in range(rows):
        copy(d_x[i], zero, made[i], zero, inputs)


@jit(absent)
def backward(
    params: Floats, net: Ints, room: Room, first: Bools, groups: int, grads: Floats, d_x: Floats
) -> None:
    """Compute the backward pass of `forward`.

    Args:
        params: As in `forward`, like net, first and groups.
        net: See there.
        room: As left by `forward`, with derivatives w.r.t. the heads in `made`.
        first: See there.
        groups: See there.
        grads: [groups, size of the flat vector]; the part of these layers is overwritten.
        d_x: [T * S, inputs], output: derivatives w.r.t. the inputs. Empty if they are not needed.
    """
    _, before, gates, cell_before, _, out, _, made, d_h = room[:9]
    now, d_after, d_cell = room.now, room.d_after, room.d_cell
    count, is_lstm, width, row_size = (
        d_cell.shape[0],
        net[KIND] == LSTM,
        net[WIDTH],
        before.shape[1],
    )
    zero, four = count - count, now.shape[1]
    _through_heads(params, net, made, room.heads_padded, d_h)
    weights, at, weights_row = params, net[RECURRENT], row_size
    if width != row_size:
        _pad_parts(params, at, net, room.padded, width, False)
        weights, at, weights_row = room.padded.reshape(-1), zero, room.padded.shape[1]
    d_after[:] = _ZERO
    d_cell[:] = _ZERO
    each, steps = count // groups, gates.shape[0] // count
    for t in range(steps - 1, -1, -1):
        for s in range(count):
            row = (s // each * steps + t) * each + s % each
            if is_lstm:
                lstm_step_back(
                    now[s], gates[row], cell_before[row], out[row], d_h[row], d_after[s],
                    d_cell[s], width,
                )  # fmt: skip
            else:
                gru_step_back(now[s], gates[row], before[row], d_h[row], d_after[s], width)
        multiply(
            d_after.reshape(-1), zero, row_size, now.reshape(-1), zero, four, zero + 1,
            weights, at, weights_row, count, row_size, four if is_lstm else 3 * row_size,
            params, zero, zero - 1, _NO_FLOOR,
        )  # fmt: skip
        for s in range(count):
            if first[(s // each * steps + t) * each + s % each]:
                d_after[s] = _ZERO
                d_cell[s] = _ZERO
    rows = steps * each
    for group in range(groups):
        begin, end, grad = group * rows, (group + 1) * rows, grads[group]
        _recurrent_of_group(net, gates, before, room.sums, begin, end, grad)
        _others_of_group(net, room, begin, end, grad)
    if d_x.size:
        _to_inputs(params, net, room, d_x)


keep_with(backward, multiply, forward, *CELL_PARTS, jit)
