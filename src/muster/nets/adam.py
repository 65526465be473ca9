"""Adam over one flat vector: the optimiser of every network.

make_adam   for the weights of a network: on the host, or on the device that has them
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from muster.errors import OptionError
from muster.jit import jit
from muster.nets.errors import ModelError
from muster.nets.flat import FlatParameters, aligned

Array = NDArray[np.float32]

TINY = np.float32(1e-30)
"""Running means below this become 0; see `adam`."""


def adam_numpy(
    p: Array,
    m: Array,
    v: Array,
    grad: Array,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    max_norm: float,
    step: int,
) -> float:
    """NumPy equivalent of `adam`."""
    wide = grad.astype(np.float64)
    norm = math.sqrt(float(np.sum(wide * wide)))  # np.dot would depend on BLAS's threads
    if not math.isfinite(norm):
        return norm
    scale = np.float32(min(1.0, max_norm / (norm + 1e-6)))
    g = grad * scale
    m *= np.float32(beta1)
    m += np.float32(1 - beta1) * g
    v *= np.float32(beta2)
    g *= g
    g *= np.float32(1 - beta2)
    v += g
    m[np.abs(m) < TINY] = 0
    v[v < TINY] = 0
    np.sqrt(v, out=g)
    g *= np.float32(1 / math.sqrt(1 - beta2**step))
    g += np.float32(eps)
    np.divide(m, g, out=g)
    g *= np.float32(lr / (1 - beta1**step))
    p -= g
    return norm


@jit(adam_numpy, "reorder")
def adam(
    p: Array,
    m: Array,
    v: Array,
    grad: Array,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    max_norm: float,
    step: int,
) -> float:
    """One step of Adam (Kingma & Ba 2015) on flat vectors, with the gradient clipped to `max_norm`.

    The running means of a weight without gradient, for instance of a dead ReLU, shrink with every
    step. After some hundred steps they would become denormals, which are thirty times as slow,
    permanently. So numbers that are negligible beside `eps` become 0.

    Returns:
        The gradient's norm before clipping. If it is not finite, nothing was changed.
    """
    squares = 0.0  # float64: in float32 a gradient would become infinite from 1e19 on
    for i in range(grad.size):
        x = np.float64(grad[i])
        squares += x * x
    norm = math.sqrt(squares)
    if not np.isfinite(norm):
        return norm
    scale = np.float32(min(1.0, max_norm / (norm + 1e-6)))
    b1, b2 = np.float32(beta1), np.float32(beta2)
    rest1, rest2 = np.float32(1 - beta1), np.float32(1 - beta2)
    rate = np.float32(lr / (1 - beta1**step))
    unbias = np.float32(1 / math.sqrt(1 - beta2**step))
    small, zero = np.float32(eps), np.float32(0)
    for i in range(p.size):
        g = grad[i] * scale
        mean = b1 * m[i] + rest1 * g
        mean = mean if abs(mean) >= TINY else zero
        square = b2 * v[i] + rest2 * (g * g)
        square = square if square >= TINY else zero
        m[i] = mean
        v[i] = square
        p[i] -= rate * mean / (np.float32(math.sqrt(square)) * unbias + small)
    return norm


class Adam:
    """Adam (Kingma & Ba 2015) with clipping of the gradient's norm, in two passes over memory.

    Equal to `torch.nn.utils.clip_grad_norm_` and `torch.optim.Adam` up to rounding.

    Args:
        vector: float32, the weights. Changed in place.
        lr: Learning rate. May be set between steps.
        betas: Decay of the running means of gradient and squared gradient.
        eps: Added to the root of the second, against division by zero.
    """

    def __init__(
        self,
        vector: Array,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        _check(lr, betas, eps)
        self.lr = lr
        self._vector = vector
        self._betas = float(betas[0]), float(betas[1])
        self._eps = float(eps)
        self.mean = aligned(vector.size)
        """Running mean of the gradient."""
        self.square = aligned(vector.size)
        """Running mean of the squared gradient."""
        self._steps = 0

    def step(self, grad: Array, max_norm: float | None = None) -> float:
        """Move the weights against `grad` and return its norm before clipping.

        If the norm is NaN or infinite, nothing is changed: the caller must check the result.

        Args:
            grad: float32, as long as the weights.
            max_norm: Larger gradients are scaled down to this norm. None: no limit.
        """
        _check_shape(grad, self._vector)
        beta1, beta2 = self._betas
        limit = math.inf if max_norm is None else float(max_norm)
        norm = adam(
            self._vector,
            self.mean,
            self.square,
            grad,
            float(self.lr),
            beta1,
            beta2,
            self._eps,
            limit,
            self._steps + 1,
        )
        if math.isfinite(norm):
            self._steps += 1
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the running means and the number of steps taken."""
        return {"mean": self.mean.copy(), "square": self.square.copy(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        _check_state(state, self._vector.shape)
        self.mean[:] = state["mean"]
        self.square[:] = state["square"]
        self._steps = int(state["steps"])


class DeviceAdam:
    """`Adam` for weights on another device, where its running means are, too.

    Equal to `Adam` up to rounding. Each step reads one number from the device: the norm.

    Args:
        weights: The weights of a network on a device.
        lr: As for `Adam`.
        betas: As for `Adam`.
        eps: As for `Adam`.
    """

    def __init__(
        self,
        weights: FlatParameters,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        _check(lr, betas, eps)
        self.lr = lr
        self._weights = weights
        self._betas = float(betas[0]), float(betas[1])
        self._eps = float(eps)
        size = weights.tensor.numel()
        self._mean, self._square = weights.device.zeros(size), weights.device.zeros(size)
        self._steps = 0

    @property
    def mean(self) -> Array:
        """Running mean of the gradient, as a copy."""
        found: Array = self._weights.device.fetch(self._mean)[0]
        return found

    @property
    def square(self) -> Array:
        """Running mean of the squared gradient, as a copy."""
        found: Array = self._weights.device.fetch(self._square)[0]
        return found

    def step(self, grad: Any, max_norm: float | None = None) -> float:
        """Move the weights against `grad` and return its norm before clipping; see `Adam.step`.

        Args:
            grad: A tensor on the device, or an array, which is copied there.
            max_norm: Larger gradients are scaled down to this norm. None: no limit.
        """
        weights, (beta1, beta2) = self._weights, self._betas
        _check_shape(grad, weights.tensor)
        with torch.no_grad():
            there = weights.device.stage(grad)
            norm = weights.device.norm(there)
            if not math.isfinite(norm):
                return norm
            self._steps += 1
            limit = math.inf if max_norm is None else float(max_norm)
            g = there * min(1.0, limit / (norm + 1e-6))
            self._mean.mul_(beta1).add_(g, alpha=1 - beta1)
            self._square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            for running in (self._mean, self._square):  # as on the host: no denormals
                running.masked_fill_(running.abs() < float(TINY), 0.0)
            unbias = 1 / math.sqrt(1 - beta2**self._steps)
            below = self._square.sqrt().mul_(unbias).add_(self._eps)
            rate = float(self.lr) / (1 - beta1**self._steps)
            weights.tensor.addcdiv_(self._mean, below, value=-rate)
            weights.changed()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the running means and the number of steps taken, as `Adam` does."""
        mean, square = self._weights.device.fetch(self._mean, self._square)
        return {"mean": mean, "square": square, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned, here or on the host."""
        _check_state(state, tuple(self._mean.shape))
        given = tuple(np.asarray(state[name], np.float32) for name in ("mean", "square"))
        mean, square = self._weights.device.stage(given)
        self._mean.copy_(mean)
        self._square.copy_(square)
        self._steps = int(state["steps"])


def make_adam(
    weights: FlatParameters,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> Adam | DeviceAdam:
    """Return the optimiser of a network's weights, on their device; the arguments are Adam's."""
    if weights.device.is_host:
        return Adam(weights.vector, lr, betas, eps)
    return DeviceAdam(weights, lr, betas, eps)


def _check(lr: float, betas: tuple[float, float], eps: float) -> None:
    for name, value, low, high in (
        ("lr", lr, 0.0, math.inf),
        ("betas[0]", betas[0], -1.0, 1.0),
        ("betas[1]", betas[1], -1.0, 1.0),
        ("eps", eps, 0.0, math.inf),
    ):
        if not low < value < high:
            raise OptionError(
                f"{name}={value!r} is not possible",
                "learning rate and eps are positive, betas lie from 0 to below 1",
                "Adam(vector, lr=1e-3)",
            )


def _check_shape(grad: Any, weights: Any) -> None:
    if grad.shape != weights.shape:
        raise OptionError(
            f"the gradient has shape {tuple(grad.shape)}, and the weights have "
            f"{tuple(weights.shape)}",
            "a gradient has one derivative for each weight",
            "grad = numpy.zeros_like(flat.vector)",
        )


def _check_state(state: dict[str, Any], shape: tuple[int, ...]) -> None:
    for name in ("mean", "square"):
        if np.shape(state[name]) != shape:
            raise ModelError(
                f"the optimiser's {name!r} has shape {np.shape(state[name])}, and the weights "
                f"have {shape}",
                "the optimiser was saved with a network of another size",
                "build the network with the config that the optimiser was saved with",
            )
