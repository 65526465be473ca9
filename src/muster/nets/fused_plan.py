"""Converts torch layers for the kernels of `fused_layers`; decides which layers are supported.

chains of Linear [LayerNorm] [Tanh, ReLU, GELU, SiLU] -> PlanBuilder -> Plan: layers, plan, sizes
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.nets import fused_activations as ends
from muster.nets import fused_layers as shape
from muster.nets.flat import FlatParameters
from muster.nets.fused_norm import NORM_EPS
from muster.nets.tile import FUSED
from muster.nets.vector_code import LANES

Ints = NDArray[np.int64]

_ENDS: dict[type[nn.Module], int] = {
    nn.Tanh: ends.TANH,
    nn.ReLU: ends.RELU,
    nn.GELU: ends.GELU,
    nn.SiLU: ends.SILU,
}


def flattened(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the parts of a module in order, with those inside a Sequential one by one."""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for part in module:
            yield from flattened(part)
    else:
        yield module


def why_no_chain(parts: Iterable[nn.Module]) -> str | None:
    """Return why consecutive modules are not Linear layers that the kernels support, or None.

    Each Linear layer has a bias, and optionally a LayerNorm after it, and then optionally an
    activation.
    """
    parts = list(parts)
    for before, part in pairwise([None, *parts]):
        kind, after = type(part), type(before)
        if kind not in (nn.Linear, nn.LayerNorm, *_ENDS):
            return f"{kind.__name__} has no compiled equivalent, or not in that place"
        normed = kind in _ENDS and after is nn.LayerNorm
        if kind is not nn.Linear and after is not nn.Linear and not normed:
            return f"{kind.__name__} does not follow a Linear layer"
        if kind is nn.Linear and getattr(part, "bias", None) is None:
            return "a Linear layer has no bias"
        if isinstance(part, nn.LayerNorm) and isinstance(before, nn.Linear):
            usual = part.eps == NORM_EPS and part.elementwise_affine
            if part.normalized_shape != (before.out_features,) or not usual:
                return f"{part} has unusual settings"
        if isinstance(part, nn.GELU) and part.approximate != "none":
            return f"{part} has unusual settings"
    layers = [part for part in parts if isinstance(part, nn.Linear)]
    for one, other in pairwise(layers):  # otherwise the kernels would read out of bounds
        if one.out_features != other.in_features:
            return (
                f"a layer of {one.out_features} outputs precedes one of {other.in_features} inputs"
            )
    return None


def why_not_compiled(module: nn.Module, flat: FlatParameters, parameters: int) -> str | None:
    """Return why a network cannot use the compiled path, whatever its layers are; None if it can.

    Args:
        module: The network.
        flat: The parameters of `module`.
        parameters: Number of tensors of its layers: each must be learnt, and used once.
    """
    if not flat.device.is_host:
        return f"the network is on the device {flat.device.name}"
    if not FUSED:
        return "numba cannot compile here, or has no directory for compiled code"
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{type(part).__name__} has hooks"
        if part._backward_hooks or part._backward_pre_hooks:
            return f"{type(part).__name__} has hooks"
    if len(flat.names_and_slices) != parameters:
        return "a parameter is shared, or belongs to no layer"
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return "a parameter is frozen"
    return None


def count_parameters(parts: Iterable[nn.Module]) -> int:
    """Return the number of parameter tensors of the layers of a chain."""
    return 2 * sum(isinstance(part, nn.Linear | nn.LayerNorm) for part in parts)


class Plan(NamedTuple):
    """The arguments of the kernels, and how much room they need."""

    layers: Ints
    plan: Ints
    kept: int
    """Floats of one block that the backward pass needs."""
    work: int
    """Floats of temporary data."""


class PlanBuilder:
    """Collects the layers of a network, in the order in which they are computed.

    Args:
        n_inputs: Numbers in one input.
        flat: All parameters.
        wanted: The inputs whose derivatives may be requested.
    """

    def __init__(self, n_inputs: int, flat: FlatParameters, wanted: range = range(0)) -> None:
        self.places = flat.places()
        """The offset of each parameter in the flat vector, by its id."""
        self._rows: list[list[int]] = []
        self._kept = self._work = 0
        self._plan = np.zeros(7, np.int64)
        self._plan[shape.N_INPUTS] = n_inputs
        self._plan[shape.INPUTS] = self.keep(shape.BLOCK * shape.padded(n_inputs))
        self._plan[shape.WANTED], self._plan[shape.N_WANTED] = wanted.start, len(wanted)
        self._plan[shape.TO_INPUTS] = self.room(shape.BLOCK * len(wanted))

    def keep(self, floats: int) -> int:
        """Allocate `floats` floats in `kept`, and return their offset."""
        start, self._kept = self._kept, self._kept + -(-floats // LANES) * LANES
        return start

    def room(self, floats: int) -> int:
        """Allocate `floats` floats in `work`, and return their offset."""
        start, self._work = self._work, self._work + -(-floats // LANES) * LANES
        return start

    def add(
        self, parts: Iterable[nn.Module], source: int = -1, first: int = 0, outputs: int = 0
    ) -> int:
        """Append the layers of one chain, and return the number of the last one.

        Args:
            parts: Modules that `why_no_chain` allows.
            source: The layer that the chain reads; -1 for the inputs.
            first: The first feature that it reads.
            outputs: Minimum room of each row of outputs.
        """
        for part in parts:
            if isinstance(part, nn.Linear):
                n_out = part.out_features
                size = shape.BLOCK * shape.padded(max(n_out, outputs))
                row = [-1] * shape.COLUMNS
                row[shape.IN], row[shape.OUT] = part.in_features, n_out
                row[shape.WEIGHT] = self.places[id(part.weight)]
                row[shape.BIAS] = self.places[id(part.bias)]
                row[shape.END], row[shape.SOURCE], row[shape.FROM] = ends.LINEAR, source, first
                row[shape.HIDDEN], row[shape.DELTA] = self.keep(size), self.room(size)
                self._rows.append(row)
                source, first = len(self._rows) - 1, 0
            elif isinstance(part, nn.LayerNorm):
                row = self._rows[-1]
                row[shape.NORM] = self.places[id(part.weight)]
                row[shape.NORM_BIAS] = self.places[id(part.bias)]
                row[shape.UNIT] = self.keep(shape.BLOCK * (row[shape.OUT] + 1))
                row[shape.SUMS] = self.room(2 * shape.BLOCK)
            else:
                row = self._rows[-1]
                row[shape.END] = _ENDS[type(part)]
                if row[shape.END] in ends.KEEPS_INPUT:
                    row[shape.BEFORE] = self.keep(shape.BLOCK * row[shape.OUT])
        return source

    def done(self) -> Plan:
        """Return the arrays that the kernels read."""
        layers = np.array(self._rows, np.int64)
        widest_in, widest_out = (int(layers[:, column].max()) for column in (shape.IN, shape.OUT))
        transposed, tile = shape.BLOCK * shape.padded(widest_in), LANES * widest_out
        self._plan[shape.SCRATCH] = self.room(transposed + tile)
        self._plan[shape.ZERO] = self.room(1)
        written: set[tuple[int, int]] = set()
        for row in layers[::-1]:  # the order of the backward pass
            place = int(row[shape.SOURCE]), int(row[shape.FROM])
            row[shape.FIRST] = place not in written
            written.add(place)
        return Plan(layers, self._plan, self._kept, self._work)
