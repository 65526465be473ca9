"""Networks of plain layers without torch: one compiled call for outputs, one for the gradient.

    why_no_fused_net  the rule for which networks are supported
    FusedNet          implements `TorchNet`, with the kernels of `fused_net_kernels`

For a network with two layers of 64, torch spends most of an update on bookkeeping; this has none.
"""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import fused_net_kernels as kernels
from muster.nets.encoders import DictEncoder, Flatten, OneHot
from muster.nets.flat import FlatParameters, aligned
from muster.nets.fused_layers import BLOCK, OUT
from muster.nets.fused_plan import (
    PlanBuilder,
    count_parameters,
    flattened,
    why_no_chain,
    why_not_compiled,
)
from muster.nets.mlp import DuelingHead
from muster.nets.row_encoder import RowEncoder, why_no_rows

Array = NDArray[np.float32]


def why_no_fused_net(
    module: nn.Module, flat: FlatParameters, nets: Sequence[nn.Module] | None = None
) -> str | None:
    """Return why a network cannot use the compiled path, or None if it can.

    The rule: the network consists only of Linear layers with biases, of any width, each optionally
    with a LayerNorm, then with ReLU, Tanh, GELU, SiLU or nothing; optionally after an encoder of
    numbers and categories, and optionally before a `DuelingHead` if the network is alone; every
    parameter is learnt and used once. Then the hand-written gradient is the whole gradient.

    Args:
        module: The network.
        flat: The parameters of `module`.
        nets: The networks that read the inputs side by side, if the module has several.
    """
    parameters = 0
    for net in nets or [module]:
        encoder, layers, dueling = _parts(net)
        reason = None if encoder is None else why_no_rows(encoder)
        if reason is not None:
            return reason
        parameters += count_parameters(layers)
        if dueling is not None and nets is not None:
            return "DuelingHead has no compiled equivalent in a group of networks"
        if dueling is not None:  # its two layers read half each: as wide as one that reads all
            layers = [*layers, nn.Linear(2 * dueling.value.in_features, 1, device="meta")]
            parameters += count_parameters([dueling.value, dueling.advantage])
        reason = why_no_chain(layers)
        if reason is not None:
            return reason
        if not layers or type(layers[-1]) is not nn.Linear:
            return "the network does not end with a Linear layer"
    return why_not_compiled(module, flat, parameters)


class _Parts(NamedTuple):
    """The parts of a network, in order."""

    encoder: nn.Module | None
    layers: list[nn.Module]
    dueling: DuelingHead | None


def _parts(net: nn.Module) -> _Parts:
    chain = list(flattened(net))
    encodes = bool(chain) and type(chain[0]) in (Flatten, OneHot, DictEncoder)
    encoder = chain.pop(0) if encodes else None
    last = chain[-1] if chain else None
    dueling = last if type(last) is DuelingHead else None
    return _Parts(encoder, chain if dueling is None else chain[:-1], dueling)


class FusedNet:
    """One network, or several side by side, as compiled calls. Call `why_no_fused_net` first.

    It reads the flat vector, so it is never out of date. Several threads may use it: each has its
    own arrays, and `backward` belongs to the last `forward` of the same thread. Returned arrays are
    never written again.

    Args:
        flat: The parameters of a module.
        nets: The networks of the module that read the inputs side by side; their outputs are
            concatenated.
        beside: Numbers that follow an observation: the last of the inputs. Derivatives
            w.r.t. these are available.
        releases_lock: Release the GIL during a call.
    """

    by_torch = None
    """The network is compiled."""

    def __init__(
        self,
        flat: FlatParameters,
        nets: Sequence[nn.Module],
        beside: int = 0,
        releases_lock: bool = False,
    ) -> None:
        self._flat = flat
        parts = [_parts(net) for net in nets]
        first = parts[0].layers[0]
        assert isinstance(first, nn.Linear)
        self._inputs = first.in_features - beside
        encoder = parts[0].encoder
        self._encode = RowEncoder(Flatten((self._inputs,)) if encoder is None else encoder)
        builder = PlanBuilder(first.in_features, flat, range(self._inputs, first.in_features))
        heads: list[int] = []
        for _, layers, dueling in parts:
            last = builder.add(layers)
            if dueling is None:
                heads.append(last)
            else:
                half = dueling.value.in_features
                heads += [
                    builder.add([dueling.value], last),
                    builder.add([dueling.advantage], last, half),
                ]
        self._plan = builder.done()
        is_dueling = parts[0].dueling is not None
        widths = self._plan.layers[heads, OUT]
        self._outputs = int(widths[-1] if is_dueling else widths.sum())
        self._network = (self._plan.layers, self._plan.plan, np.array(heads, np.int64), is_dueling)
        self._beside = beside
        by_threads = kernels.outputs_beside, kernels.gradient_beside
        self._calls = by_threads if releases_lock else (kernels.outputs, kernels.gradient)
        self._nothing = np.zeros(0, np.float32)
        self._local = threading.local()

    def network(self) -> tuple[Array, Any, Any, Any, bool]:
        """Return the first arguments of the kernels of `fused_net_kernels`."""
        return (self._flat.vector, *self._network)

    def room(self, rows: int) -> tuple[Array, Array]:
        """Return this thread's arrays `kept` and `work` of these kernels, for `rows` rows."""
        blocks = -(-rows // BLOCK)
        local = self._local.__dict__
        kept = local.get("kept")
        if kept is None or len(kept) < blocks:
            kept = local["kept"] = aligned(blocks, self._plan.kept)
        work = local.get("work")
        if work is None:
            work = local["work"] = aligned(self._plan.work)
        return kept, work

    def rows(self, obs: Any) -> Array:
        """Return observations as the rows of numbers that the kernels read."""
        return self._encode(obs)

    def forward(self, obs: Any, beside: Array | None = None, training: bool = True) -> Array:
        """Return outputs [B, K] of observations [B, ...], and keep the data for `backward`.

        Args:
            obs: [B, ...].
            beside: [B, numbers] that follow the observations.
            training: Ignored: no layer here has two modes.
        """
        rows = self._encode(obs)
        out = self._compute(rows, beside, self.room(len(rows))[0])
        self._local.rows = len(out)
        return out

    def predict(self, obs: Any, beside: Array | None = None) -> Array:
        """Return the same outputs, without data for `backward`: for acting and targets."""
        local = self._local.__dict__
        kept = local.get("one")
        if kept is None:
            kept = local["one"] = aligned(1, self._plan.kept)
        return self._compute(self._encode(obs), beside, kept)

    def backward(self, d_out: Array, grad: Array) -> None:
        """Write the gradient of sum(d_out * outputs) of the last `forward` into a flat vector.

        Args:
            d_out: float32 [B, K].
            grad: float32, as long as the flat vector. The parts of other layers stay unchanged.
        """
        self._back(d_out, grad, np.zeros((0, 0), np.float32))

    def input_gradient(self, d_out: Array, grad: Array | None = None) -> Array:
        """Return the gradient of sum(d_out * outputs) of the last `forward` w.r.t. `beside`.

        Args:
            d_out: float32 [B, K].
            grad: Also write the gradient of the weights there, as `backward` does.
        """
        d_in = np.empty((len(d_out), self._beside), np.float32)
        self._back(d_out, self._nothing if grad is None else grad, d_in)
        return d_in

    def _compute(self, rows: Array, beside: Array | None, kept: Array) -> Array:
        if beside is None:
            beside = np.zeros((len(rows), 0), np.float32)
        if rows.shape[1] != self._inputs or beside.shape != (len(rows), self._beside):
            raise OptionError(
                f"observations of shape {rows.shape} do not fit the network",
                f"it reads {self._inputs} numbers from each of {len(rows)} observations",
                "obs[None], if this is a single observation",
            )
        out = np.empty((len(rows), self._outputs), np.float32)
        beside = np.ascontiguousarray(beside, np.float32)
        self._calls[0](*self.network(), kept, rows, beside, out)
        return out

    def _back(self, d_out: Array, grad: Array, d_in: Array) -> None:
        rows = self._local.__dict__.get("rows")
        if d_out.shape != (rows, self._outputs):
            raise OptionError(
                f"backward got derivatives of shape {d_out.shape}",
                "they belong to the outputs of the last forward in this thread",
                "q = net.forward(obs), then net.backward(dq, grad) with a dq for each q",
            )
        kept, work = self.room(len(d_out))
        self._calls[1](*self.network(), kept, work, np.ascontiguousarray(d_out), grad, d_in)
