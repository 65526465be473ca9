"""Networks whose weights are random: every Linear layer has a mean and a spread of each weight.

    w = mean + spread * noise        noise of a weight = f(noise of its output) f(that of its input)
                                     f(x) = sign(x) sqrt(|x|)

Fortunato et al. 2018, with factorised Gaussian noise. A plain copy of the network holds w, so what
compiles the plain network runs this one, too.
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
"""Of a weight of a layer with one input; with n inputs it is divided by sqrt(n)."""


class NoisyNetwork(nn.Module):
    """The means of all weights of a network, and their spreads.

    Args:
        mean: The network. Layers that are not Linear have no noise.
    """

    def __init__(self, mean: nn.Module) -> None:
        super().__init__()
        self.mean = mean
        self.spread = copy.deepcopy(mean)
        self._plain = [copy.deepcopy(mean)]  # in a list, so it is no part of this module
        with torch.no_grad():
            for parameter in self.spread.parameters():
                parameter.zero_()
            for layer in self.spread.modules():
                if isinstance(layer, nn.Linear):
                    for parameter in layer.parameters():
                        parameter.fill_(FIRST_SPREAD / math.sqrt(layer.in_features))

    @property
    def plain(self) -> nn.Module:
        """A copy of the network for weights that were drawn; who runs it writes them."""
        return self._plain[0]

    def forward(self, obs: Any) -> Tensor:
        """Return what the means make of observations."""
        made: Tensor = self.mean(obs)
        return made


class NoisyNet:
    """Runs a `NoisyNetwork`, with the face of `FusedNet`; `draw` or `settle` comes before each use.

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
        """Why it is not compiled."""
        self.noise = aligned(self._plain.vector.size)
        """What the spreads are multiplied by, weight by weight."""
        self._noise: Any = self.noise
        """The same, where the network is computed."""
        self._grad = self._plain.new_gradient()
        at = self._plain.places()
        self._layers = [
            (layer.out_features, layer.in_features, at[id(layer.weight)], at.get(id(layer.bias)))
            for layer in plain.modules()
            if isinstance(layer, nn.Linear)
        ]

    def draw(self, rng: np.random.Generator) -> None:
        """Draw new noise, and use the weights that it makes."""
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
        """Return outputs, [B, K], and keep what `backward` needs."""
        return self._net.forward(obs)

    def backward(self, d_out: Array, grad: Any) -> None:
        """Write the gradient of sum(d_out * outputs) of the last `forward` by means and spreads."""
        self._net.backward(d_out, self._grad)
        size = self.noise.size
        grad[:size] = self._grad
        grad[size:] = self._grad * self._noise


def _root(rng: np.random.Generator, size: int) -> Array:
    x = rng.standard_normal(size, np.float32)
    found: Array = np.sign(x) * np.sqrt(np.abs(x))
    return found
