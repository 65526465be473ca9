"""One step of an LSTM or a GRU for one sequence, forwards and backwards, as parts of kernels.

A row of gates has four parts of `wide` numbers, of which `width` are used:

    LSTM   input, forget, output, write: cell = forget * cell + input * write
    GRU    reset, update, recurrent, new: new = tanh(by inputs + reset * recurrent)

Each loop writes one array and reads few: so LLVM sees that they do not overlap, and vectorises.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.nets.fused_activations import sigmoid_of, tanh_of
from muster.nets.tile import noinline, part

Floats = NDArray[np.float32]

LSTM, GRU = range(2)
"""Kinds of cells."""
GATES = (4, 3)
"""Number of gates of each kind of cell that its inputs are multiplied for."""
PARTS = 4
"""Parts of a row of gates."""

_ONE = np.float32(1)


@part
def _sigmoid(x: Floats, last: int) -> None:
    noinline()
    for k in range(last):
        x[k] = sigmoid_of(x[k])


@part
def _copy(to: Floats, x: Floats, last: int) -> None:
    noinline()
    for k in range(last):
        to[k] = x[k]


@part
def lstm_step(
    now: Floats,
    gates: Floats,
    cell_before: Floats,
    cell: Floats,
    out: Floats,
    h: Floats,
    width: int,
) -> None:
    """Compute gates, cell, its tanh and the output from the gates' inputs.

    Args:
        now: [4 * wide], the gates' inputs; overwritten.
        gates: [4 * wide], output.
        cell_before: [wide].
        cell: [wide], output.
        out: [wide], output: the tanh of the cell.
        h: [wide or more], output.
        width: Numbers in each part.
    """
    noinline()
    wide = cell.size
    _sigmoid(now, 3 * wide)
    for k in range(width):
        now[3 * wide + k] = tanh_of(now[3 * wide + k])
    for k in range(width):
        cell[k] = now[wide + k] * cell_before[k] + now[k] * now[3 * wide + k]
    for k in range(width):
        out[k] = tanh_of(cell[k])
    for k in range(width):
        h[k] = now[2 * wide + k] * out[k]
    _copy(gates, now, PARTS * wide)


@part
def lstm_step_back(
    now: Floats,
    gates: Floats,
    cell_before: Floats,
    out: Floats,
    d_h: Floats,
    d_after: Floats,
    d_cell: Floats,
    width: int,
) -> None:
    """Turn gates into derivatives w.r.t. their inputs, and d_cell into that of the previous step.

    Args:
        now: [4 * wide], output: the derivatives, as in `gates`.
        gates: [4 * wide], the gates; overwritten with the derivatives.
        cell_before: [wide].
        out: [wide], the tanh of the cell.
        d_h: [wide], w.r.t. the output.
        d_after: [wide], the contribution of the next step to d_h; overwritten with 0.
        d_cell: [wide], w.r.t. the cell; overwritten with the derivative w.r.t. the previous cell.
        width: Numbers in each part.
    """
    noinline()
    wide = out.size
    for k in range(width):
        d_after[k] = d_h[k] + d_after[k]
    for k in range(width):
        d_cell[k] = d_after[k] * gates[2 * wide + k] * (_ONE - out[k] * out[k]) + d_cell[k]
    for k in range(width):
        enter = gates[k]
        now[k] = d_cell[k] * gates[3 * wide + k] * enter * (_ONE - enter)
    for k in range(width):
        stay = gates[wide + k]
        now[wide + k] = d_cell[k] * cell_before[k] * stay * (_ONE - stay)
    for k in range(width):
        leave = gates[2 * wide + k]
        now[2 * wide + k] = d_after[k] * out[k] * leave * (_ONE - leave)
    for k in range(width):
        write = gates[3 * wide + k]
        now[3 * wide + k] = d_cell[k] * gates[k] * (_ONE - write * write)
    for k in range(width):
        d_cell[k] = d_cell[k] * gates[wide + k]
    d_after[:] = np.float32(0)
    _copy(gates, now, PARTS * wide)


@part
def gru_step(now: Floats, gates: Floats, h_before: Floats, h: Floats, width: int) -> None:
    """Compute gates and the output from the gates' inputs.

    Args:
        now: [4 * wide], the gates' inputs, for new in two parts, by state and by inputs;
            overwritten.
        gates: [4 * wide], output.
        h_before: [wide].
        h: [wide or more], output.
        width: Numbers in each part.
    """
    noinline()
    wide = h_before.size
    _sigmoid(now, 2 * wide)
    for k in range(width):
        now[3 * wide + k] = now[3 * wide + k] + now[k] * now[2 * wide + k]
    for k in range(width):
        now[3 * wide + k] = tanh_of(now[3 * wide + k])
    for k in range(width):
        new, stay = now[3 * wide + k], now[wide + k]
        h[k] = new + stay * (h_before[k] - new)
    _copy(gates, now, PARTS * wide)


@part
def gru_step_back(
    now: Floats, gates: Floats, h_before: Floats, d_h: Floats, d_after: Floats, width: int
) -> None:
    """Turn gates into derivatives w.r.t. their inputs.

    Args:
        now: [4 * wide], output: the derivatives, as in `gates`.
        gates: [4 * wide], the gates; overwritten with the derivatives.
        h_before: [wide].
        d_h: [wide], w.r.t. the output.
        d_after: [wide], the contribution of the next step to d_h; overwritten with the direct
            contribution to the previous output.
        width: Numbers in each part.
    """
    noinline()
    wide = h_before.size
    for k in range(width):
        d_after[k] = d_h[k] + d_after[k]
    for k in range(width):
        new = gates[3 * wide + k]
        now[3 * wide + k] = d_after[k] * (_ONE - gates[wide + k]) * (_ONE - new * new)
    for k in range(width):
        now[2 * wide + k] = now[3 * wide + k] * gates[k]
    for k in range(width):
        stay = gates[wide + k]
        now[wide + k] = d_after[k] * (h_before[k] - gates[3 * wide + k]) * stay * (_ONE - stay)
    for k in range(width):
        reset = gates[k]
        now[k] = now[3 * wide + k] * gates[2 * wide + k] * reset * (_ONE - reset)
    for k in range(width):
        d_after[k] = d_after[k] * gates[wide + k]
    _copy(gates, now, PARTS * wide)


CELL_PARTS: tuple[Any, ...] = (lstm_step, tanh_of)
"""One function of each file that a kernel of cells is compiled from (see `keep_with`)."""
