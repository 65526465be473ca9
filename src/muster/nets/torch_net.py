"""Any torch module with the interface of `FusedNet`: NumPy in and out, flat gradient."""

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.errors import OptionError
from muster.nets.flat import FlatParameters
from muster.nets.fused_net import FusedNet, why_no_fused_net
from muster.nets.gradient_target import GradientTarget
from muster.nets.masking import MaskedModel
from muster.nets.row_encoder import mask_of
from muster.rl_utils.illegal import ILLEGAL

Array = NDArray[np.float32]


def make_net(
    module: nn.Module, flat: FlatParameters, releases_lock: bool = False
) -> "FusedNet | MaskedNet | TorchNet":
    """Return the fastest way to run a module: compiled if possible, otherwise by torch.

    Args:
        module: Maps observations to outputs [B, K].
        flat: The parameters of `module`.
        releases_lock: Release the GIL during a compiled call.
    """
    plain = module.model if type(module) is MaskedModel else module
    why = why_no_fused_net(plain, flat)
    if why is not None:
        return TorchNet(module, flat, why)
    net = FusedNet(flat, [plain], releases_lock=releases_lock)
    return net if plain is module else MaskedNet(net)


class MaskedNet:
    """A compiled network with illegal outputs masked, like `MaskedModel`.

    Args:
        net: The network, which ignores masks.
    """

    by_torch = None
    """The network is compiled."""

    def __init__(self, net: FusedNet) -> None:
        self._net = net
        self._local = threading.local()

    def forward(self, obs: Any) -> Array:
        """Return q, [B, actions], and keep the data for `backward`."""
        q = self._net.forward(obs)
        self._local.illegal = _illegal(obs, q)
        q[self._local.illegal] = ILLEGAL
        return q

    def predict(self, obs: Any) -> Array:
        """Return q, [B, actions]."""
        q = self._net.predict(obs)
        q[_illegal(obs, q)] = ILLEGAL
        return q

    def backward(self, dq: Array, grad: Array) -> None:
        """Write the gradient of sum(dq * q) of the last `forward` in this thread."""
        self._net.backward(np.where(self._local.illegal, np.float32(0), dq), grad)


def _illegal(obs: Any, q: Array) -> NDArray[np.bool_]:
    mask = mask_of(obs, q.shape[1])
    assert mask is not None, "only networks of masked observations are masked"
    illegal: NDArray[np.bool_] = mask == 0
    return illegal


class TorchNet:
    """A module run by torch and autograd.

    Args:
        module: Maps observations to q [B, actions].
        flat: The parameters of `module`.
        why: The reason why the compiled path is not used.
    """

    def __init__(
        self, module: nn.Module, flat: FlatParameters, why: str = "it was requested"
    ) -> None:
        self.by_torch = why
        """The reason why the network is not compiled."""
        self._module = module
        self._flat = flat
        self._device = flat.device
        self._q: Tensor | None = None
        self._last_input: Tensor | None = None
        self._gradient = GradientTarget(module, flat, keeps_views=True)

    def forward(self, obs: Any, beside: Array | None = None, training: bool = True) -> Array:
        """Return q, [B, actions], and keep the data for `backward`.

        Args:
            obs: [B, ...], or a dict of such arrays; arrays, or tensors that are already staged.
            beside: [B, numbers] that the module reads with them: it then receives a pair.
            training: Whether dropout and batch norm are in training mode.
        """
        self._set_mode(training)
        inputs = self._device.stage(obs if beside is None else (obs, beside))
        if beside is not None:
            self._last_input = inputs[1].detach().requires_grad_()
            inputs = inputs[0], self._last_input
        with torch.enable_grad():
            self._q = q = self._module(inputs)
        return self._fetched(q)

    def predict(self, obs: Any, beside: Array | None = None) -> Array:
        """Return q, [B, actions], in evaluation mode: without dropout, with fixed batch norm."""
        self._set_mode(training=False)
        with torch.no_grad():
            q = self._module(self._device.stage(obs if beside is None else (obs, beside)))
        return self._fetched(q)

    def backward(self, dq: Array, grad: Any) -> None:
        """Write the gradient of sum(dq * q) of the last `forward` into a flat vector.

        Args:
            dq: float32 [B, actions].
            grad: float32, as long as the flat vector; an array, or a tensor on the same device.
        """
        q = self._take_last(dq)
        self._gradient.write([q], [self._device.stage(dq)], grad)

    def input_gradient(self, dq: Array) -> Array:
        """Return the gradient of sum(dq * q) of the last `forward` w.r.t. `beside`.

        Args:
            dq: float32 [B, actions].
        """
        q, last = self._take_last(dq), self._last_input
        assert last is not None, "forward(obs, beside) came before"
        (gradient,) = torch.autograd.grad(q, last, self._device.stage(dq))
        return self._fetched(gradient)

    def _fetched(self, tensor: Tensor) -> Array:
        found: Array = self._device.fetch(tensor)[0]
        return found

    def _take_last(self, dq: Array) -> Tensor:
        """Return the output of the last `forward`, which is usable for one gradient."""
        if self._q is None or dq.shape != tuple(self._q.shape):
            raise OptionError(
                f"backward got dq of shape {dq.shape}",
                "it must match the q of the last forward, and be used once",
                "q = net.forward(obs), then net.backward(dq, grad) with a dq for each q",
            )
        q, self._q = self._q, None
        return q

    def _set_mode(self, training: bool) -> None:
        if self._module.training is not training:
            self._module.train(training)
