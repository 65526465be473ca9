"""All parameters of a torch module in one NumPy vector.

    FlatParameters(module) copies every parameter into one vector and makes the module's parameters
    views of it. From then on there is one memory: torch computes with it, NumPy kernels read and
    write it, an optimiser steps it in one pass, and weights move as one array.

The module stays an ordinary module: state_dict, load_state_dict and autograd work as before. Only
what gives parameters new memory (`module.to("cuda")`, `module.half()`) parts it from the vector.
"""

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from muster.jit import jit
from muster.nets.errors import ModelError

Array = NDArray[np.float32]


def aligned(*shape: int) -> Array:
    """Return a new float32 array of zeros whose first element begins a cache line.

    numpy.zeros promises 16 bytes only, and where it lands differs from run to run; so then would
    speed, and with some BLAS libraries the last bit of a result.
    """
    size = math.prod(shape)
    room = np.zeros(size + 16, np.float32)
    start = (-room.ctypes.data // 4) % 16
    return room[start : start + size].reshape(shape)


_PIECE = 2048
"""Numbers that `add_rows` adds at a time."""


def add_rows_numpy(rows: Array, total: Array) -> None:
    """Twin of `add_rows`."""
    np.copyto(total, rows[0])
    for row in rows[1:]:
        total += row


@jit(add_rows_numpy)
def add_rows(rows: Array, total: Array) -> None:
    """total[n] = rows[0] + rows[1] + ... of rows [k, n], in this order, in one pass over memory.

    Piece by piece, each of which stays in the first cache: a loop over rows inside one over numbers
    does not vectorise, and takes three times as long.
    """
    for start in range(0, total.size, _PIECE):
        piece = total[start : start + _PIECE]
        row = rows[0, start : start + _PIECE]
        for i in range(piece.size):
            piece[i] = row[i]
        for k in range(1, rows.shape[0]):
            row = rows[k, start : start + _PIECE]
            for i in range(piece.size):
                piece[i] += row[i]


def move_towards_numpy(weights: Array, others: Array, share: np.float32) -> None:
    """Twin of `move_towards`."""
    step = others - weights
    step *= share
    weights += step


@jit(move_towards_numpy)
def move_towards(weights: Array, others: Array, share: np.float32) -> None:
    """Move each weight by a share of the way to another, in one pass over memory."""
    for i in range(weights.size):
        weights[i] += (others[i] - weights[i]) * share


class FlatParameters:
    """One contiguous float32 vector that every parameter of a module is a view of.

    Args:
        module: Any torch module with float32 parameters on the CPU. Parameters that are used in
            several places are held once.
    """

    vector: Array
    """The parameters, one after the other, in the order of `module.named_parameters()`."""
    names_and_slices: dict[str, slice]
    """Where each parameter lies in the vector."""

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        for name, parameter in named.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise ModelError(
                    f"parameter {name!r} is {parameter.dtype} on {parameter.device}",
                    "muster keeps the weights of a network as float32 in the CPU's memory",
                    "return module.float().cpu() from what builds the model",
                )
        self.module = module
        self._buffers = list(module.buffers())  # torch looks through all modules for them
        self.vector = aligned(sum(parameter.numel() for parameter in named.values()))
        self.names_and_slices = {}
        start = 0
        for name, parameter in named.items():
            piece = slice(start, start + parameter.numel())
            self.names_and_slices[name] = piece
            view = torch.from_numpy(self.vector[piece]).view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            start = piece.stop

    def places(self) -> dict[int, int]:
        """Return where each parameter begins in the vector, by the parameter's id."""
        named = self.module.named_parameters()
        return {id(parameter): self.names_and_slices[name].start for name, parameter in named}

    def copy_from(self, other: "FlatParameters", tau: float = 1.0) -> None:
        """Move the weights towards those of another copy of the same module.

        Args:
            other: Where to take them from. Its buffers (running means and such) are taken too.
            tau: How far to go: 1 copies, 0.005 goes a two-hundredth of the way.
        """
        if tau == 1:
            np.copyto(self.vector, other.vector)
        else:
            move_towards(self.vector, other.vector, np.float32(tau))
        for mine, theirs in zip(self._buffers, other._buffers, strict=True):
            mine.copy_(theirs)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return a copy of every weight and buffer of the module by name, as NumPy arrays."""
        state = self.module.state_dict()
        return {name: tensor.detach().numpy().copy() for name, tensor in state.items()}

    def load_state_dict(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take over what `state_dict` returned, after checking that all of it fits."""
        mine = self.module.state_dict()
        absent, unknown = sorted(mine.keys() - state.keys()), sorted(state.keys() - mine.keys())
        if absent or unknown:
            raise ModelError(
                f"the weights do not fit the network: {absent} absent, {unknown} unknown to it",
                "they were saved from a network of another kind or depth",
                "build the network with the config that the weights were saved with",
            )
        for name, tensor in mine.items():
            if tuple(tensor.shape) != np.shape(state[name]):
                raise ModelError(
                    f"{name!r} has shape {np.shape(state[name])}, and the network's has "
                    f"{tuple(tensor.shape)}",
                    "the weights were saved from a network of another size",
                    "build the network with the config that the weights were saved with",
                )
        for name, tensor in mine.items():
            tensor.copy_(torch.from_numpy(np.array(state[name])))

    def sha256(self) -> str:
        """Return a hash over the names, types, shapes and bytes of the weights and buffers."""
        digest = hashlib.sha256()
        for name, array in self.state_dict().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def name_at(self, index: int) -> str:
        """Return the name of the parameter that holds element `index` of the vector."""
        for name, piece in self.names_and_slices.items():
            if piece.start <= index < piece.stop:
                return name
        raise IndexError(index)
