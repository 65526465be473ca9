"""The residual network of Espeholt et al. 2018 (IMPALA, figure 3, right) for images of any size."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from muster.nets.fixed import StandardizedImage
from muster.nets.images import ImageInput
from muster.nets.mlp import draw_weights

CHANNELS = (16, 32, 32)
"""Channels of the three sections."""


class ImpalaCNN(nn.Module):
    """Fifteen convolutions over uint8 images, to features [B, self.out_features].

    A section is a convolution, a max-pool that halves height and width, and two residual blocks.
    Half of 1 is 1 here, so every size can be read.

    Args:
        shape: Shape of one image, as `ImageInput` reads it.
        generator: Draws the initial weights. None: torch's global generator.
        standardized: Standardise images by the numbers of an earlier training.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator | None = None,
        standardized: bool = False,
    ) -> None:
        super().__init__()
        self.input = (StandardizedImage if standardized else ImageInput)(shape)
        before, size = self.input.channels, list(self.input.size)
        layers: list[nn.Module] = []
        for channels in CHANNELS:
            layers += [_convolution(before, channels, generator), nn.MaxPool2d(3, 2, padding=1)]
            layers += [ResidualBlock(channels, generator) for _ in range(2)]
            size = [(n + 1) // 2 for n in size]
            before = channels
        self.layers = nn.Sequential(*layers, nn.ReLU())
        self.out_features = before * math.prod(size)

    def forward(self, image: Tensor) -> Tensor:
        """Return features [B, out_features] of images [B, *shape] with values from 0 to 255."""
        features: Tensor = self.layers(self.input(image))
        return features.flatten(1)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), of [B, channels, H, W].

    Args:
        channels: Channels of input and output.
        generator: Draws the initial weights. None: torch's global generator.
    """

    def __init__(self, channels: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.first = _convolution(channels, channels, generator)
        self.second = _convolution(channels, channels, generator)

    def forward(self, image: Tensor) -> Tensor:
        """Return [B, channels, H, W]."""
        step: Tensor = self.second(functional.relu(self.first(functional.relu(image))))
        return image + step


def _convolution(before: int, after: int, generator: torch.Generator | None) -> nn.Conv2d:
    layer = nn.Conv2d(before, after, 3, padding=1, device="meta")
    draw_weights(layer, generator)
    return layer
