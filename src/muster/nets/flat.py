"""All parameters of a torch module in one NumPy vector.

    FlatParameters(module) copies every parameter into one vector and makes the module's parameters
    views of it. From then on they share memory: torch computes with it, NumPy kernels read and
    write it, an optimiser updates it in one pass, and weights are sent as one array.

    On a device other than the host (`networks_on`) the parameters are views of one tensor there,
    `tensor`, and `vector` is a copy that is updated when it is read.

The module stays an ordinary module: state_dict, load_state_dict and autograd work as before. Only
operations that give parameters new memory (`module.half()`) separate it from the vector.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.devices import Device, as_array, current_device
from muster.jit import jit
from muster.nets.errors import ModelError

Array = NDArray[np.float32]


def aligned(*shape: int) -> Array:
    """Return a new float32 array of zeros whose first element begins a cache line.

    numpy.zeros guarantees only 16 bytes, and the actual alignment differs from run to run; so then
    would speed, and with some BLAS libraries the last bit of a result.
    """
    size = math.prod(shape)
    room = np.zeros(size + 16, np.float32)
    start = (-room.ctypes.data // 4) % 16
    return room[start : start + size].reshape(shape)


_PIECE = 2048
"""Numbers that `add_rows` adds at a time."""


def add_rows_numpy(rows: Array, total: Array) -> None:
    """NumPy equivalent of `add_rows`."""
    np.copyto(total, rows[0])
    for row in rows[1:]:
        total += row


@jit(add_rows_numpy)
def add_rows(rows: Array, total: Array) -> None:
    """total[n] = rows[0] + rows[1] + ... of rows [k, n], in this order, in one pass over memory.

    Adds piece by piece, so that each piece stays in the first cache: a loop over rows inside a loop
    over numbers does not vectorise, and takes three times as long.
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
    """NumPy equivalent of `move_towards`."""
    step = others - weights
    step *= share
    weights += step


@jit(move_towards_numpy)
def move_towards(weights: Array, others: Array, share: np.float32) -> None:
    """Move each weight by a share of the distance to another, in one pass over memory."""
    for i in range(weights.size):
        weights[i] += (others[i] - weights[i]) * share


class FlatParameters:
    """One contiguous float32 vector that every parameter of a module is a view of.

    Args:
        module: Any torch module with float32 parameters on the CPU. Parameters that are used in
            several places are stored once.
        device: The device to compute on. None: the device of `networks_on`.
    """

    names_and_slices: dict[str, slice]
    """The slice of each parameter in the vector."""

    def __init__(self, module: nn.Module, device: Device | None = None) -> None:
        self.device = current_device() if device is None else device
        named = dict(module.named_parameters())
        for name, parameter in named.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise ModelError(
                    f"parameter {name!r} is {parameter.dtype} on {parameter.device}",
                    "muster keeps the weights of a network as float32 in the CPU's memory",
                    "return module.float().cpu() from the function that builds the model",
                )
        self.module = module
        self._vector = aligned(sum(parameter.numel() for parameter in named.values()))
        self.names_and_slices = {}
        start = 0
        for name, parameter in named.items():
            piece = slice(start, start + parameter.numel())
            self.names_and_slices[name] = piece
            view = torch.from_numpy(self._vector[piece]).view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            start = piece.stop
        self.tensor: Tensor = torch.from_numpy(self._vector)
        """The same on the device. Code that changes it there must call `changed`."""
        self._is_old = False
        if not self.device.is_host:
            self._move(named)
        self._buffers = list(module.buffers())  # torch would search all modules each time

    @property
    def vector(self) -> Array:
        """The parameters, one after the other, in the order of `module.named_parameters()`.

        On a device other than the host this is a read-only copy; use `load` to write.
        """
        if self.device.is_host:
            return self._vector
        if self._is_old:
            self._vector[:] = self.device.fetch(self.tensor)[0]
            self._is_old = False
        shown = self._vector.view()
        shown.flags.writeable = False
        return shown

    @vector.setter
    def vector(self, values: Array) -> None:
        if values is not self._vector:  # otherwise it was changed in place
            self.load(values)

    def load(self, vector: Array) -> None:
        """Set the values of all parameters."""
        np.copyto(self._vector, vector)
        if not self.device.is_host:
            self.tensor.copy_(self.device.stage(self._vector))
            self._is_old = False

    def changed(self) -> None:
        """Mark `vector` as outdated, after a change of `tensor`."""
        self._is_old = True

    def new_gradient(self) -> Any:
        """Return zeros, one for each parameter, on the device where gradients are computed.

        The result is an array on the host, and a tensor on any other device.
        """
        size = self._vector.size
        return aligned(size) if self.device.is_host else self.device.zeros(size)

    def _move(self, named: dict[str, nn.Parameter]) -> None:
        """Make the module's parameters views of one tensor on the device."""
        self.tensor = self.device.zeros(self._vector.size)
        self.tensor.copy_(self.device.stage(self._vector))
        places = self.names_and_slices
        views = {
            id(each): self.tensor[places[name]].view(each.shape) for name, each in named.items()
        }
        self.device.hold(self.module, views)

    def places(self) -> dict[int, int]:
        """Return the offset of each parameter in the vector, by the parameter's id."""
        named = self.module.named_parameters()
        return {id(parameter): self.names_and_slices[name].start for name, parameter in named}

    def copy_from(self, other: "FlatParameters", tau: float = 1.0) -> None:
        """Move the weights towards those of another copy of the same module.

        Args:
            other: The source. Its buffers (running means etc.) are copied, too.
            tau: How far to move: 1 copies, 0.005 moves a two-hundredth of the way.
        """
        if not self.device.is_host:
            same = other.device.name == self.device.name
            theirs = other.tensor if same else self.device.stage(other.vector)
            way = theirs if tau == 1 else self.tensor + (theirs - self.tensor) * tau
            self.tensor.copy_(way)
            self.changed()
        elif tau == 1:
            np.copyto(self._vector, other.vector)
        else:
            move_towards(self._vector, other.vector, np.float32(tau))
        for mine, theirs in zip(self._buffers, other._buffers, strict=True):
            mine.copy_(theirs)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return a copy of every weight and buffer of the module by name, as NumPy arrays."""
        if self.device.is_host:
            state = self.module.state_dict()
            return {name: tensor.detach().numpy().copy() for name, tensor in state.items()}
        vector, found = self.vector, {}
        for name, tensor, piece in self._pieces():  # one copy for all parameters
            array = as_array(tensor) if piece is None else vector[piece].reshape(tensor.shape)
            found[name] = array.copy()
        return found

    def load_state_dict(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Restore a state that `state_dict` returned, after checking that all of it fits."""
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
                    f"{name!r} has shape {np.shape(state[name])}, and the network needs "
                    f"{tuple(tensor.shape)}",
                    "the weights were saved from a network of another size",
                    "build the network with the config that the weights were saved with",
                )
        if self.device.is_host:
            for name, tensor in mine.items():
                tensor.copy_(torch.from_numpy(np.array(state[name])))
            return
        vector = np.array(self.vector)
        for name, tensor, piece in self._pieces():
            if piece is None:
                tensor.copy_(torch.from_numpy(np.array(state[name])))
            else:
                vector[piece] = np.reshape(np.asarray(state[name], np.float32), -1)
        self.load(vector)

    def _pieces(self) -> Iterator[tuple[str, Tensor, slice | None]]:
        """Yield each entry of the module's state: name, tensor, and its slice of the vector.

        A buffer has no slice.
        """
        places = self.places()
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            start = places.get(id(tensor))
            yield name, tensor, None if start is None else slice(start, start + tensor.numel())

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
