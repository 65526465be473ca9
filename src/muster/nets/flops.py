"""Counts the matrix products of a network for one observation, while the network runs.

Linear and Conv2d layers, and the recurrent part of cells, are products of [rows, inner] and [inner,
outer], which are nearly all of a network's arithmetic. Activations, norms and pooling are not
counted.
"""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from muster.devices import beside
from muster.nets.cells import GRU, LSTM


@dataclass(frozen=True)
class Product:
    """A layer of a network, as a matrix product for one observation."""

    rows: int
    """1 for a vector, the output pixels for a convolution."""
    inner: int
    outer: int
    times: int = 1
    """Number of such products: one for each group of channels."""

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.inner * self.outer * self.times


def count_products(module: nn.Module, obs_space: gym.Space[Any]) -> list[Product]:
    """Run a module on one observation, and return the products of its layers in order.

    A layer that is used twice counts twice. Parameters and buffers stay unchanged.
    """
    found: list[Product] = []

    def note(layer: nn.Module, inputs: tuple[Any, ...], made: Any) -> None:
        if isinstance(layer, LSTM | GRU):  # the product of its inputs belongs to a Linear layer
            rows = made[0].numel() // layer.width
            found.append(Product(rows, layer.width, len(layer.recurrent)))
        elif isinstance(layer, nn.Linear):
            rows = made.numel() // layer.out_features
            found.append(Product(rows, layer.in_features, layer.out_features))
        elif isinstance(layer, nn.Conv2d):
            inner = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
            outer = layer.out_channels // layer.groups
            found.append(
                Product(made.numel() // layer.out_channels, inner, outer, times=layer.groups)
            )

    obs: Any = gym.vector.utils.create_empty_array(obs_space, 1, fn=np.zeros)
    training = module.training
    hooks = [
        layer.register_forward_hook(note)
        for layer in module.modules()
        if isinstance(layer, nn.Linear | nn.Conv2d | LSTM | GRU)
    ]
    module.eval()  # or batch norm would include this observation in its statistics
    try:
        with torch.no_grad():
            module(beside(module, obs))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return found
