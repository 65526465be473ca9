"""Turns the convolutions of a torch module into what `conv_kernels` read; says which can be.

NatureCNN -> why_no_convolutions -> ConvPlan -> layers, tables, room
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.nets import conv_kernels as kernels
from muster.nets.cnn import NatureCNN
from muster.nets.conv_tile import COLUMNS
from muster.nets.flat import FlatParameters

_MOST_PADDING = 4
"""Channels of an image that are made up, for each that is there."""


class ConvPlan(NamedTuple):
    """What the kernels are called with, and how much room they need."""

    layers: NDArray[np.int64]
    tables: NDArray[np.int64]
    planes: bool
    """Whether an image has its channels first."""
    image: int
    """Floats of one image."""
    kept: int
    """Floats of all outputs of one image."""
    turned: int
    """Floats of the weights in both orders."""
    sums: int
    """Floats of a gradient."""
    features: int


def why_no_convolutions(encoder: nn.Module) -> str | None:
    """Say why convolutions are not those that the kernels know, or None if they are.

    The rule: it is a `NatureCNN` whose layers have channels in multiples of 32; the first one may
    read fewer, if a row of its kernel has a multiple of 32 numbers after some padding.
    """
    if type(encoder) is not NatureCNN:
        return f"observations go through {type(encoder).__name__}"
    layers = list(encoder.layers)
    convolutions = [layer for layer in layers[::2] if isinstance(layer, nn.Conv2d)]
    ends = [end for end in layers[1::2] if isinstance(end, nn.ReLU)]
    if 2 * len(convolutions) != len(layers) or len(ends) != len(convolutions):
        return "layers are not convolutions with ReLU"
    for layer in convolutions:
        height, width = layer.kernel_size
        if height != width or layer.stride[0] != layer.stride[1] or layer.bias is None:
            return f"{layer} is not the usual one"
        if layer.out_channels % COLUMNS:
            return f"a convolution has {layer.out_channels} channels, no multiple of {COLUMNS}"
    first = convolutions[0]
    if _padded(first) > _MOST_PADDING * first.in_channels:
        return f"a kernel of {first.kernel_size[0]} reads {first.in_channels} channels of an image"
    return None


def _padded(first: nn.Conv2d) -> int:
    """Return the channels of an image, with so many that a kernel's row fills whole tiles."""
    channels = first.in_channels
    while channels * first.kernel_size[1] % COLUMNS:
        channels += 1
    return channels


def plan_convolutions(encoder: NatureCNN, flat: FlatParameters) -> ConvPlan:
    """Return the plan of convolutions for which `why_no_convolutions` says None."""
    convolutions = [layer for layer in encoder.layers if isinstance(layer, nn.Conv2d)]
    places, (height, width) = flat.places(), encoder.input.size
    rows: list[list[int]] = []
    tables: list[NDArray[np.int64]] = []
    channels = _padded(convolutions[0])
    image, kept, table, turned, sums = height * width * channels, 0, 0, 0, 0
    for layer in convolutions:
        kernel, stride, out = layer.kernel_size[0], layer.stride[0], layer.out_channels
        high, wide = ((n - kernel) // stride + 1 for n in (height, width))
        row = [0] * kernels.PLACES
        row[kernels.CHANNELS], row[kernels.REAL] = channels, layer.in_channels
        row[kernels.HEIGHT], row[kernels.WIDTH] = height, width
        row[kernels.KERNEL], row[kernels.STRIDE] = kernel, stride
        row[kernels.OUT], row[kernels.PIXELS] = out, high * wide
        row[kernels.WEIGHT] = places[id(layer.weight)]
        row[kernels.BIAS] = places[id(layer.bias)]
        row[kernels.KEPT], row[kernels.TABLE], row[kernels.TURNED] = kept, table, turned
        rows.append(row)
        y, x = np.mgrid[:high, :wide].reshape(2, -1) * stride
        tables += [(y * width + x) * channels, np.arange(high * wide) * out]
        weights = kernel * kernel * channels * out
        kept, table, turned = (
            kept + high * wide * out,
            table + 2 * high * wide,
            turned + 2 * weights,
        )
        sums += weights + out
        height, width, channels = high, wide, out
    assert all(one[kernels.OUT] == other[kernels.REAL] for one, other in pairwise(rows))
    return ConvPlan(
        np.array(rows, np.int64),
        np.concatenate(tables).astype(np.int64),
        encoder.input.channels_first,
        image,
        kept,
        turned,
        sums,
        encoder.out_features,
    )
