"""The network of Mnih et al. 2015 for images of any size."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from muster.nets.images import ImageInput
from muster.nets.mlp import draw_weights

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each layer, for 84 x 84."""


class NatureCNN(nn.Module):
    """Three convolutions over uint8 images, to features [B, self.out_features].

    For an image smaller than 36 pixels these strides would leave nothing, so it is read with
    kernels of 3, and with a first stride of 2 if it has 16 pixels or more. A kernel is never larger
    than its input, so every size can be read.

    Args:
        shape: Shape of one image, as `ImageInput` reads it.
        generator: Draws the initial weights. None: torch's global generator.
    """

    def __init__(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.input = ImageInput(shape)
        channels, size = self.input.channels, list(self.input.size)
        plan = NATURE
        if min(size) < 36:
            first = 2 if min(size) >= 16 else 1
            plan = ((32, 3, first), (64, 3, 1), (64, 3, 1))
        layers: list[nn.Module] = []
        for (before, _, _), (out, kernel, stride) in pairwise(((channels, 0, 0), *plan)):
            kernels = (min(kernel, size[0]), min(kernel, size[1]))
            layer = nn.Conv2d(before, out, kernels, stride, device="meta")
            draw_weights(layer, generator)
            layers += [layer, nn.ReLU()]
            size = [(n - k) // stride + 1 for n, k in zip(size, kernels, strict=True)]
        self.layers = nn.Sequential(*layers)
        self.out_features = plan[-1][0] * math.prod(size)

    def forward(self, image: Tensor) -> Tensor:
        """Return features [B, out_features] of images [B, *shape] with values from 0 to 255."""
        features: Tensor = self.layers(self.input(image))
        return features.flatten(1)
