"""The residual networks of He et al. 2015 for small images, section 4.2, of any depth 6n + 2.

    image -> conv 16 -> n blocks of 16 -> n of 32, halved -> n of 64, halved -> features

A block is two 3 x 3 convolutions and a shortcut without parameters ("option A" of the paper): where
a stage halves the image and doubles the channels, it takes every second pixel and pads with zero
channels. So 1 + 6n convolutions and the last layer make the 6n + 2 layers of the name.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from muster.nets.fixed import FixedBatchNorm, StandardizedImage
from muster.nets.images import ImageInput
from muster.nets.mlp import linear

CHANNELS = (16, 32, 64)
"""Channels of the three stages."""
_GROUP = 8
"""Channels that `norm="group"` normalises together."""

Norm = Literal["batch", "group", "none", "fixed"]
"""The normalisation after each convolution.

batch: over the images of a batch, as in the paper; for `muster fit`, see docs/fit.md.
group: over groups of 8 channels of one image (Wu & He 2018). The result for an image does not
    depend on the images beside it, so a policy is the same for any number of workers.
none: no normalisation; convolutions then have biases.
fixed: like batch, with the averages of an earlier training: for a backbone from `muster fit`.
"""


class ResNet(nn.Module):
    """A residual network over uint8 images, to features [B, self.out_features].

    Args:
        shape: Shape of one image, as `ImageInput` reads it.
        depth: 6n + 2 for a whole n: 8, 20, 32, 44, 56, ...
        norm: The normalisation after each convolution.
        cells: Maximum height and width of the final feature map: each cell is the mean of its part.
            1 discards positions, which classes do not need but actions do.
        generator: Draws the initial weights. None: torch's global generator.
        standardized: Standardise images by the numbers of an earlier training.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        depth: int,
        norm: Norm = "group",
        cells: int = 4,
        generator: torch.Generator | None = None,
        standardized: bool = False,
    ) -> None:
        super().__init__()
        self.input = (StandardizedImage if standardized else ImageInput)(shape)
        self.first = _convolution(self.input.channels, CHANNELS[0], 1, norm, generator)
        blocks: list[nn.Module] = []
        before, size = CHANNELS[0], list(self.input.size)
        for channels in CHANNELS:
            for number in range((depth - 2) // 6):
                stride = 2 if number == 0 and channels != before else 1
                blocks.append(BasicBlock(before, channels, stride, norm, generator))
                size = [-(-n // stride) for n in size]
                before = channels
        self.blocks = nn.Sequential(*blocks)
        self._cells = min(cells, size[0]), min(cells, size[1])
        self.out_features = before * math.prod(self._cells)

    def forward(self, image: Tensor) -> Tensor:
        """Return features [B, out_features] of images [B, *shape] with values from 0 to 255."""
        features = self.blocks(functional.relu(self.first(self.input(image))))
        if self._cells == (1, 1):
            return torch.mean(features, (2, 3))
        return functional.adaptive_avg_pool2d(features, self._cells).flatten(1)


class BasicBlock(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))), of [B, channels, H, W].

    Args:
        before: Channels of the input.
        channels: Channels of the output.
        stride: 2 halves height and width.
        norm: The normalisation after each convolution.
        generator: Draws the initial weights. None: torch's global generator.
    """

    def __init__(
        self,
        before: int,
        channels: int,
        stride: int,
        norm: Norm,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.first = _convolution(before, channels, stride, norm, generator)
        self.second = _convolution(channels, channels, 1, norm, generator)
        self._stride = stride
        self._more = channels - before

    def forward(self, image: Tensor) -> Tensor:
        """Return [B, channels, H / stride, W / stride]."""
        step = self.second(functional.relu(self.first(image)))
        if self._stride > 1 or self._more:
            half = self._more // 2
            image = image[:, :, :: self._stride, :: self._stride]
            image = functional.pad(image, (0, 0, 0, 0, half, self._more - half))
        return functional.relu(image + step)


def resnet_classifier(
    shape: tuple[int, ...],
    depth: int,
    classes: int,
    norm: Norm = "batch",
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a network from images [B, *shape] to one output per class, [B, classes].

    Args:
        shape: Shape of one image, as `ImageInput` reads it.
        depth: 6n + 2 for a whole n.
        classes: Number of classes.
        norm: The normalisation after each convolution.
        generator: Draws the initial weights. None: torch's global generator.
    """
    encoder = ResNet(shape, depth, norm, cells=1, generator=generator)
    head = linear(encoder.out_features, classes, generator)
    whole = nn.Sequential()
    whole.add_module("encoder", encoder)
    whole.add_module("head", head)
    return whole


def count_layers(module: nn.Module) -> int:
    """Return the number of layers with weights of a network, without normalisation layers."""
    return sum(isinstance(part, nn.Conv2d | nn.Linear) for part in module.modules())


def _convolution(
    before: int, after: int, stride: int, norm: Norm, generator: torch.Generator | None
) -> nn.Sequential:
    layer = nn.Conv2d(before, after, 3, stride, 1, bias=norm == "none", device="meta")
    # He et al. 2015, eq. 10: keeps the variance from input to output, after a ReLU.
    values = torch.empty(layer.weight.shape)
    values.normal_(0, math.sqrt(2 / (9 * before)), generator=generator)
    layer.weight = nn.Parameter(values)
    if layer.bias is not None:
        layer.bias = nn.Parameter(torch.zeros(after))
    after_it: dict[str, Any] = {
        "batch": lambda: [nn.BatchNorm2d(after)],
        "group": lambda: [nn.GroupNorm(after // _GROUP, after)],
        "none": list,
        "fixed": lambda: [FixedBatchNorm(after)],
    }
    return nn.Sequential(layer, *after_it[norm]())
