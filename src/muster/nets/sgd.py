"""Gradient descent with momentum over one flat vector, and weight decay."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.nets.flat import FlatParameters, aligned

Array = NDArray[np.float32]


class Sgd:
    """Gradient descent with momentum: v = momentum * v + g, weights -= lr * v, like torch's SGD.

    Args:
        vector: float32, the weights. Changed in place.
        lr: Learning rate. May be set between steps.
        momentum: Share of the last step that is kept.
    """

    def __init__(self, vector: Array, lr: float, momentum: float = 0.9) -> None:
        self.lr = lr
        self._vector = vector
        self._momentum = np.float32(momentum)
        self.velocity = aligned(vector.size)
        """The current step, before multiplication by the learning rate."""
        self._scratch = aligned(vector.size)

    def step(self, grad: Array) -> float:
        """Move the weights against `grad` and return its norm.

        If the norm is NaN or infinite, nothing is changed: the caller must check the result.

        Args:
            grad: float32, as long as the weights.
        """
        # No BLAS: its order of summation depends on the number of threads of this process.
        norm = math.sqrt(float(np.square(grad, dtype=np.float64).sum()))
        if math.isfinite(norm):
            self.velocity *= self._momentum
            self.velocity += grad
            np.multiply(self.velocity, np.float32(self.lr), out=self._scratch)
            self._vector -= self._scratch
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the velocity."""
        return {"velocity": self.velocity.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.velocity[:] = state["velocity"]


def decaying(flat: FlatParameters) -> Array:
    """Return 1 for every weight of a product or convolution, and 0 for all other parameters.

    Biases, and the scales and shifts of norms, do not make a network more complex, so they do not
    decay.
    """
    chosen = np.zeros(flat.vector.size, np.float32)
    for name, part in flat.module.named_modules():
        if isinstance(part, nn.Linear | nn.modules.conv._ConvNd):
            chosen[flat.names_and_slices[f"{name}.weight" if name else "weight"]] = 1
    return chosen
