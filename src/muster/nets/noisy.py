"""Networks with random weights: Linear layers with a mean and a standard deviation per weight.

    w = mean + spread * noise        noise of a weight = f(noise of output) f(noise of input)
                                     f(x) = sign(x) sqrt(|x|)

Fortunato et al. 2018, with factorised Gaussian noise. A plain copy of the network holds w, so this
network is compiled if the plain network can be.
"""

import copy
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.nets.flat import FlatParameters, aligned
from muster.nets.torch_net import make_net

Array = NDArray[np.float32]

FIRST_SPREAD = 0.5
"""Initial spread of a weight of a layer with one input; with n inputs, divided by sqrt(n)."""


class NoisyNetwork(nn.Module):
    """The means and the spreads of all weights of a network.

    Args:
        mean: The network. Layers that are not Linear have no noise.
    """

    def __init__(self, mean: nn.Module) -> None:
        super().__init__()
        self.mean = mean
        self.spread = copy.deepcopy(mean)
        self._plain = [copy.deepcopy(mean)]  # in a list, so that it is not a submodule
        with torch.no_grad():
            for parameter in self.spread.parameters():
                parameter.zero_()
            for layer in self.spread.modules():
                if isinstance(layer, nn.Linear):
                    for parameter in layer.parameters():
                        parameter.fill_(FIRST_SPREAD / math.sqrt(layer.in_features))

    @property
    def plain(self) -> nn.Module:
        """A copy of the network for drawn weights; the code that runs it writes them."""
        return self._plain[0]

    def forward(self, obs: Any) -> Tensor:
        """Return the result of the means for observations."""
        made: Tensor = self.mean(obs)
        return made


class NoisyNet:
    """Runs a `NoisyNetwork` like `FusedNet`; call `draw` or `settle` before each use.

    Args:
        module: The network.
        flat: Its parameters: all means, then all spreads.
    """

    def __init__(self, module: NoisyNetwork, flat: FlatParameters) -> None:
        plain = module.plain
        self._flat = flat
        self._plain = FlatParameters(plain, flat.device)
        self._net = make_net(plain, self._plain)
        self.by_torch = self._net.by_torch
        """The reason why the network is not compiled."""
        self.noise = aligned(self._plain.vector.size)
        """The factor of each weight's spread."""
        self._noise: Any = self.noise
        """The same on the device of the network."""
        self._grad = self._plain.new_gradient()
        at = self._plain.places()
        self._layers = [
            (layer.out_features, layer.in_features, at[id(layer.weight)], at.get(id(layer.bias)))
            for layer in plain.modules()
            if isinstance(layer, nn.Linear)
        ]

    def draw(self, rng: np.random.Generator) -> None:
        """Draw new noise, and use the resulting weights."""
        for out, inputs, weight, bias in self._layers:
            of_inputs, of_outputs = _root(rng, inputs), _root(rng, out)
            self.noise[weight : weight + out * inputs] = np.outer(of_outputs, of_inputs).reshape(-1)
            if bias is not None:
                self.noise[bias : bias + out] = of_outputs
        if not self._flat.device.is_host:
            self._noise = self._flat.device.stage(self.noise)
            mean_there, spread_there = self._flat.tensor.chunk(2)
            self._plain.tensor.copy_(spread_there * self._noise + mean_there)
            self._plain.changed()
            return
        mean, spread = np.split(self._flat.vector, 2)
        np.multiply(spread, self.noise, out=self._plain.vector)
        self._plain.vector += mean

    def settle(self) -> None:
        """Use the means."""
        self._plain.tensor.copy_(self._flat.tensor[: self.noise.size])
        self._plain.changed()

    def predict(self, obs: Any) -> Array:
        """Return outputs, [B, K]."""
        return self._net.predict(obs)

    def forward(self, obs: Any) -> Array:
        """Return outputs, [B, K], and keep the data for `backward`."""
        return self._net.forward(obs)

    def backward(self, d_out: Array, grad: Any) -> None:
        """Write the gradient of sum(d_out * outputs) of the last `forward`, for mean and spread."""
        self._net.backward(d_out, self._grad)
        size = self.noise.size
        grad[:size] = self._grad
        grad[size:] = self._grad * self._noise


def _root(rng: np.random.Generator, size: int) -> Array:
    x = rng.standard_normal(size, np.float32)
    found: Array = np.sign(x) * np.sqrt(np.abs(x))
    return found
