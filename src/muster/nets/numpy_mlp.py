"""Small networks without torch's overhead: forward and backward by hand, on the flat vector.

    obs -> x [in, B] -> per layer: W @ x (BLAS), add_bias -> ... -> q [B, actions]
    dq  -> per layer, last first: dW = d @ x.T, dx = W.T @ d (BLAS), through_activation -> grad

For a network of two layers of 64 torch spends most of an update on bookkeeping. Here all arrays
and all products are prepared once per batch size (`_Work`), so that an update is a dozen BLAS calls
with a kernel between each two. `why_not_fast` is the one rule for which modules go this way; all
others go through `TorchNet`, which has the same face.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import kernels
from muster.nets.encoders import Flatten, OneHot
from muster.nets.flat import FlatParameters, aligned
from muster.nets.mlp import DuelingHead

Array = NDArray[np.float32]

_ENDS: dict[type[nn.Module], int] = {nn.ReLU: kernels.RELU, nn.Tanh: kernels.TANH}
_HAS_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
_MAX_WORKS = 8
"""Batch sizes whose arrays are kept, per thread: acting, learning, evaluating and a few more."""


class _Layer(NamedTuple):
    """One Linear layer: views of its weights, and how it ends."""

    weight: Array
    bias: Array
    at: tuple[slice, slice] | None
    """Where the two lie in the flat vector, and so their gradients; None for a folded head."""
    end: int


class _Dueling(NamedTuple):
    """A dueling head: weight and bias of the value, then of the advantages, and where they lie."""

    arrays: tuple[Array, Array, Array, Array]
    at: tuple[slice, slice, slice, slice]


def fast_mlp(module: nn.Module, flat: FlatParameters) -> "FastMLP | None":
    """Return the fast twin of a module that is a plain chain of layers, or None if it is not.

    Args:
        module: The network.
        flat: Its parameters. The twin reads them, so it is never out of date.
    """
    return None if why_not_fast(module, flat) else FastMLP(module, flat)


def why_not_fast(module: nn.Module, flat: FlatParameters) -> str | None:
    """Say what keeps a module from the fast path, or None if nothing does.

    The rule: the module does exactly Linear layers with biases, each followed by ReLU, Tanh or
    nothing, maybe after a `Flatten` or `OneHot`, maybe before a `DuelingHead`; every parameter is
    learnt and used once. Then the hand-written gradient is the whole gradient.
    """
    chain = list(_chain(module))
    if chain and type(chain[0]) in (Flatten, OneHot):
        del chain[0]
    layers: list[nn.Module] = []
    if chain and type(chain[-1]) is DuelingHead:
        layers = [chain[-1].value]
        chain[-1] = chain[-1].advantage  # the two are one layer to us, see kernels.fold_dueling
    for part in chain:
        if type(part) not in (nn.Linear, *_ENDS):
            return f"{type(part).__name__} has no fast twin, or not at that place"
    layers += [part for part in chain if type(part) is nn.Linear]
    if not chain or type(chain[0]) is not nn.Linear or type(chain[-1]) is not nn.Linear:
        return "it does not go from one Linear layer to another"
    for before, part in pairwise(chain):
        if type(part) is not nn.Linear and type(before) is not nn.Linear:
            return f"{type(part).__name__} follows {type(before).__name__}"
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{type(part).__name__} has hooks"
        if part._backward_hooks or part._backward_pre_hooks:
            return f"{type(part).__name__} has hooks"
    if any(layer.bias is None for layer in layers):
        return "a Linear layer has no bias"
    if len(flat.names_and_slices) != 2 * len(layers):
        return "a parameter is shared, or belongs to no layer"
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return "a parameter is frozen"
    return None


def _chain(module: nn.Module) -> Iterator[nn.Module]:
    """Yield what a module does, in order: what is inside a Sequential one by one."""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for part in module:
            yield from _chain(part)
    else:
        yield module


def product(a: Array, b: Array, out: Array) -> Callable[[], object]:
    """Return a call that writes a @ b into `out`, by the library that is fastest at this size.

    NumPy's BLAS (OpenBLAS) is called with less overhead; torch's (MKL) multiplies large matrices
    faster: 64 x 256 x 256 in 47 us and not 61, measured on an Intel Xeon. The choice hangs on sizes
    alone, never on a measurement, so that the same run gives the same bits.
    """
    multiplications = a.shape[0] * a.shape[1] * b.shape[1]
    if multiplications > 2**18 and _HAS_MKL:
        tensors = [torch.from_numpy(x) for x in (a, b, out)]
        return partial(torch.mm, tensors[0], tensors[1], out=tensors[2])
    return partial(np.dot, a, b, out)


class _Step:
    """One layer at one batch size: its arrays, and its products made ready to be called."""

    def __init__(self, layer: _Layer, source: Array) -> None:
        self.layer = layer
        self.source = source
        self.output = aligned(len(layer.weight), source.shape[1])
        self.multiply = product(layer.weight, source, self.output)
        self.floor = 0.0 if layer.end == kernels.RELU else -np.inf
        self.delta = aligned(*self.output.shape)  # gradient by the output, then by what W @ x is

    def follow(self, before: "_Step") -> None:
        """Prepare to write into the delta of the layer before."""
        self.to_source = product(self.layer.weight.T, self.delta, before.delta)

    def bind(self, to_weight: Array, to_bias: Array) -> None:
        """Prepare to write gradients there."""
        self.grad_bias = to_bias
        self.to_weight = product(self.delta, self.source.T, to_weight)


class _Work:
    """All layers at one batch size, in one thread."""

    def __init__(self, layers: list[_Layer], dueling: _Dueling | None, batch: int) -> None:
        self.dueling = dueling
        if dueling is not None:
            actions, half = dueling.arrays[2].shape
            folded = aligned(actions, 2 * half), aligned(actions)
            layers = [*layers, _Layer(*folded, None, kernels.LINEAR)]
            self._folded_grad = aligned(actions, 2 * half), aligned(actions)
        self.x = aligned(layers[0].weight.shape[1], batch)
        self.shape = (batch, len(layers[-1].weight))
        self.steps: list[_Step] = []
        source = self.x
        for layer in layers:
            self.steps.append(_Step(layer, source))
            source = self.steps[-1].output
        for before, step in pairwise(self.steps):
            step.follow(before)
        self._grad: Array | None = None

    def forward(self) -> Array:
        """Return q of what is in `x`."""
        *inner, last = self.steps
        if self.dueling is not None:
            kernels.fold_dueling(*self.dueling.arrays, last.layer.weight, last.layer.bias)
        for step in inner:
            step.multiply()
            kernels.add_bias(step.output, step.layer.bias, step.floor)
            if step.layer.end == kernels.TANH:
                np.tanh(step.output, out=step.output)  # NumPy's is vectorised, numba's is not
        last.multiply()
        q = np.empty(self.shape, np.float32)
        kernels.to_rows(last.output, last.layer.bias, q)
        return q

    def backward(self, dq: Array, grad: Array) -> None:
        """Write the gradient of sum(dq * q) into `grad`."""
        if grad is not self._grad:
            self._bind(grad)
        after = self.steps[-1]
        kernels.to_columns(dq, after.delta, after.grad_bias)
        after.to_weight()
        for step in self.steps[-2::-1]:
            after.to_source()
            kernels.through_activation(step.delta, step.output, step.layer.end, step.grad_bias)
            step.to_weight()
            after = step
        if self.dueling is not None:
            kernels.unfold_dueling(*self._folded_grad, *self._head_grad)

    def backward_to_input(self, dq: Array, columns: slice) -> Array:
        """Return the gradient of sum(dq * q) by some columns of the input, [B, columns]."""
        after = self.steps[-1]
        kernels.to_columns(dq, after.delta, np.empty(len(after.delta), np.float32))
        for step in self.steps[-2::-1]:
            after.to_source()
            unused = np.empty(len(step.delta), np.float32)
            kernels.through_activation(step.delta, step.output, step.layer.end, unused)
            after = step
        weight = after.layer.weight[:, columns]
        by_input = np.empty((len(dq), weight.shape[1]), np.float32)
        product(after.delta.T, weight, by_input)()
        return by_input

    def _bind(self, grad: Array) -> None:
        """Prepare every product whose result lies in this vector."""
        for step in self.steps:
            if step.layer.at is None:
                to_weight, to_bias = self._folded_grad
            else:
                to_weight, to_bias = (grad[at] for at in step.layer.at)
            step.bind(to_weight.reshape(step.layer.weight.shape), to_bias)
        if self.dueling is not None:
            pairs = zip(self.dueling.arrays, self.dueling.at, strict=True)
            self._head_grad = [grad[at].reshape(array.shape) for array, at in pairs]
        self._grad = grad


class FastMLP:
    """A network as BLAS calls on a flat vector. Made by `fast_mlp`.

    May be used from several threads: each has its own arrays, and `backward` belongs to the last
    `forward` of the same thread. What a call returns is never written again.
    """

    def __init__(self, module: nn.Module, flat: FlatParameters) -> None:
        slices = {id(p): flat.names_and_slices[name] for name, p in module.named_parameters()}

        def view(parameter: torch.Tensor) -> tuple[Array, slice]:
            at = slices[id(parameter)]
            return flat.vector[at].reshape(tuple(parameter.shape)), at

        self._one_hot: NDArray[np.int64] | None = None
        self._layers: list[_Layer] = []
        self._dueling: _Dueling | None = None
        for part in _chain(module):
            if isinstance(part, OneHot):
                self._one_hot = part.offsets.numpy()
            elif isinstance(part, nn.Linear):
                (weight, weight_at), (bias, bias_at) = view(part.weight), view(part.bias)
                self._layers.append(_Layer(weight, bias, (weight_at, bias_at), kernels.LINEAR))
            elif isinstance(part, DuelingHead):
                (value, value_at), (value_bias, value_bias_at) = map(view, part.value.parameters())
                (adv, adv_at), (adv_bias, adv_bias_at) = map(view, part.advantage.parameters())
                self._dueling = _Dueling(
                    (value, value_bias, adv, adv_bias),
                    (value_at, value_bias_at, adv_at, adv_bias_at),
                )
            elif type(part) in _ENDS:
                self._layers[-1] = self._layers[-1]._replace(end=_ENDS[type(part)])
        self._local = threading.local()

    def forward(self, obs: Any, training: bool = True) -> Array:
        """Return q, [B, actions], of observations [B, ...], and keep what `backward` needs.

        Args:
            obs: [B, ...].
            training: Makes no difference: no layer here has two modes.
        """
        obs = np.asarray(obs)
        work = self._work(len(obs))
        rows = obs.reshape(len(obs), -1)
        if self._one_hot is not None:
            work.x[:] = 0
            work.x[(rows + self._one_hot).T, np.arange(len(obs))] = 1
        elif rows.size == work.x.size:
            np.copyto(work.x, rows.T)
        else:
            raise OptionError(
                f"observations of shape {obs.shape} do not fit the network",
                f"it reads {len(work.x)} numbers from each of {len(obs)} observations",
                "obs[None], if this is a single observation",
            )
        self._local.last = work
        return work.forward()

    predict = forward
    """The same, for who needs no `backward`: acting and targets."""

    def backward(self, dq: Array, grad: Array) -> None:
        """Write the gradient of sum(dq * q) of the last `forward` into a flat vector.

        Args:
            dq: float32 [B, actions].
            grad: float32, as long as the flat vector. Passing the same one each time is fastest.
        """
        self._last_work(dq).backward(dq, grad)

    def input_gradient(self, dq: Array, columns: slice = slice(None)) -> Array:
        """Return the gradient of sum(dq * q) of the last `forward` by its input, [B, columns].

        Args:
            dq: float32 [B, actions].
            columns: Which numbers of the input; all of them if it is not given.
        """
        return self._last_work(dq).backward_to_input(dq, columns)

    def _last_work(self, dq: Array) -> _Work:
        work: _Work | None = getattr(self._local, "last", None)
        if work is None or dq.shape != work.shape:
            raise OptionError(
                f"backward got dq of shape {dq.shape}",
                "it belongs to the q of the last forward in this thread",
                "q = fast.forward(obs), then fast.backward(dq, grad) with a dq for each q",
            )
        return work

    def _work(self, batch: int) -> _Work:
        works: dict[int, _Work] | None = getattr(self._local, "works", None)
        if works is None:
            works = self._local.works = {}
        work = works.get(batch)
        if work is None:
            if len(works) >= _MAX_WORKS:
                works.clear()
            work = works[batch] = _Work(self._layers, self._dueling, batch)
        return work
