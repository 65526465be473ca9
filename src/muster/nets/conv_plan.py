"""Converts the convolutions of a torch module for `conv_kernels`; decides which are supported.

NatureCNN, ImpalaCNN -> why_no_convolutions -> ConvPlan: steps, tables, room
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.nets import conv_kernels as kernels
from muster.nets.cnn import NatureCNN
from muster.nets.conv_tile import WIDE
from muster.nets.flat import FlatParameters
from muster.nets.impala_cnn import ImpalaCNN, ResidualBlock
from muster.nets.vector_code import LANES


class ConvPlan(NamedTuple):
    """The arguments of the kernels, and how much room they need."""

    steps: NDArray[np.int64]
    tables: NDArray[np.int64]
    planes: bool
    """Whether the channels of an image come first."""
    scratch: int
    """Floats that images use one after another."""
    kept: int
    """Floats of one image that the backward pass needs."""
    chosen: int
    """Choices of pools for one image."""
    turned: int
    """Floats of the weights in both orders."""
    sums: int
    """Floats of a gradient."""
    features: int


def why_no_convolutions(encoder: nn.Module) -> str | None:
    """Return why the kernels do not support these convolutions, or None if they do.

    The rule: the encoder is an `ImpalaCNN`, or a `NatureCNN` with square kernels. Both have
    channels in multiples of 16; the input of the first layer may have any number.
    """
    if type(encoder) not in (NatureCNN, ImpalaCNN):
        return f"observations go through {type(encoder).__name__}"
    for layer in encoder.modules():
        if not isinstance(layer, nn.Conv2d):
            continue
        height, width = layer.kernel_size
        if height != width or layer.stride[0] != layer.stride[1] or layer.bias is None:
            return f"{layer} has unusual settings"
        if layer.out_channels % LANES:
            return f"a convolution has {layer.out_channels} channels, not a multiple of {LANES}"
    return None


def plan_convolutions(encoder: NatureCNN | ImpalaCNN, flat: FlatParameters) -> ConvPlan:
    """Return the plan of convolutions for which `why_no_convolutions` returns None."""
    builder = _Builder(flat)
    source = encoder.input
    border = 1 if isinstance(encoder, ImpalaCNN) else 0
    image = builder.scratch(_Pixels(*source.size, source.channels, border))
    if isinstance(encoder, ImpalaCNN):
        last = _sections(builder, encoder, image)
    else:
        last = image
        for layer in encoder.layers:
            if isinstance(layer, nn.Conv2d):
                made = builder.kept(last.convolved(layer))
                builder.convolve(layer, last, made, kernels.WITH_RELU)
                last = made
    return builder.plan(image, last, source.channels_first)


def _sections(builder: "_Builder", encoder: ImpalaCNN, image: "_Pixels") -> "_Pixels":
    """Plan the residual network, and return the buffer of its features."""
    last = image
    for layer in encoder.layers:
        if isinstance(layer, nn.Conv2d):
            wide = builder.scratch(last.convolved(layer, border=1), beyond=image)
            builder.convolve(layer, last, wide, kernels.PLAIN)
            last = builder.kept(wide.pooled(border=1))
            builder.pool(wide, last)
        elif isinstance(layer, ResidualBlock):
            inner = builder.rectify(last)
            middle = builder.kept(inner)
            builder.convolve(layer.first, inner, middle, kernels.WITH_RELU)
            builder.convolve(layer.second, middle, last, kernels.ADDED)
    return builder.rectify(last)


@dataclass(frozen=True)
class _Pixels:
    """A buffer of pixels, [height, width, channels], with `border` pixels of zeros all around."""

    height: int
    width: int
    channels: int
    border: int = 0
    at: int = 0
    """Offset; `_SCRATCH` or more in the room that images use one after another."""

    @property
    def row(self) -> int:
        return (self.width + 2 * self.border) * self.channels

    @property
    def size(self) -> int:
        return (self.height + 2 * self.border) * self.row

    def inside(self) -> NDArray[np.int64]:
        """Return the offset of each pixel, without borders."""
        y, x = np.mgrid[: self.height, : self.width].reshape(2, -1) + self.border
        places: NDArray[np.int64] = y * self.row + x * self.channels
        return places

    def patches(self, kernel: int, stride: int) -> NDArray[np.int64]:
        """Return the offset of each patch that a convolution reads, with borders."""
        high, wide = (
            (n + 2 * self.border - kernel) // stride + 1 for n in (self.height, self.width)
        )
        y, x = np.mgrid[:high, :wide].reshape(2, -1) * stride
        places: NDArray[np.int64] = y * self.row + x * self.channels
        return places

    def convolved(self, layer: nn.Conv2d, border: int = 0) -> "_Pixels":
        kernel, stride = layer.kernel_size[0], layer.stride[0]
        high, wide = (
            (n + 2 * self.border - kernel) // stride + 1 for n in (self.height, self.width)
        )
        return _Pixels(high, wide, layer.out_channels, border)

    def pooled(self, border: int) -> "_Pixels":
        return _Pixels((self.height + 1) // 2, (self.width + 1) // 2, self.channels, border)


_SCRATCH = 1 << 40
"""Added to offsets in `scratch` until the size of `kept` is known."""


class _Builder:
    """Allocates buffers, and writes steps and tables one after another."""

    def __init__(self, flat: FlatParameters) -> None:
        self._places = flat.places()
        self._steps: list[list[int]] = []
        self._tables: list[NDArray[np.int64]] = []
        self._kept = self._scratch = self._chosen = self._turned = self._sums = self._table = 0

    def kept(self, pixels: _Pixels) -> _Pixels:
        """Allocate pixels that stay unchanged until the backward pass."""
        placed = _Pixels(pixels.height, pixels.width, pixels.channels, pixels.border, self._kept)
        self._kept += placed.size
        return placed

    def scratch(self, pixels: _Pixels, beyond: _Pixels | None = None) -> _Pixels:
        """Allocate pixels in shared room, after a buffer that must not overlap."""
        begin = 0 if beyond is None else beyond.at - _SCRATCH + beyond.size
        placed = _Pixels(
            pixels.height, pixels.width, pixels.channels, pixels.border, _SCRATCH + begin
        )
        self._scratch = max(self._scratch, begin + placed.size)
        return placed

    def convolve(self, layer: nn.Conv2d, source: _Pixels, to: _Pixels, end: int) -> None:
        """Add a convolution, padded by the width of its input's border."""
        kernel, channels, out = layer.kernel_size[0], source.channels, to.channels
        tables = [source.patches(kernel, layer.stride[0]), to.inside()]
        if source.border:
            tables += [to.patches(kernel, 1), source.inside()]
        row = self._step(kernels.CONVOLVE, source, to, *tables)
        row[kernels.END], row[kernels.KERNEL] = end, kernel
        row[kernels.STRIDE], row[kernels.PADDED] = layer.stride[0], source.border
        row[kernels.WEIGHT] = self._places[id(layer.weight)]
        row[kernels.BIAS] = self._places[id(layer.bias)]
        row[kernels.TURNED], row[kernels.SUMS] = self._turned, self._sums
        self._turned += 2 * kernel * kernel * channels * out
        self._sums += (kernel * kernels.span_of(kernel, channels) + 1) * out

    def pool(self, source: _Pixels, to: _Pixels) -> None:
        """Add a max-pool."""
        row = self._step(kernels.POOL, source, to, to.inside())
        row[kernels.WEIGHT] = self._chosen
        self._chosen += to.height * to.width * to.channels

    def rectify(self, source: _Pixels) -> _Pixels:
        """Add a ReLU, and return its output."""
        made = self.kept(source)
        self._step(kernels.RECTIFY, source, made, made.inside())
        return made

    def plan(self, image: _Pixels, last: _Pixels, planes: bool) -> ConvPlan:
        """Return the complete plan."""
        steps = np.array(self._steps, np.int64)
        for column in (kernels.FROM, kernels.TO):
            places = steps[:, column]
            places[places >= _SCRATCH] += self._kept - _SCRATCH
        ends = [image.inside()[:1], last.inside()]
        return ConvPlan(
            steps,
            np.concatenate([*self._tables, *ends]).astype(np.int64),
            planes,
            self._scratch + WIDE,  # a vector may extend beyond the last patch
            self._kept,
            max(1, self._chosen),
            self._turned,
            self._sums,
            last.height * last.width * last.channels,
        )

    def _step(
        self, kind: int, source: _Pixels, to: _Pixels, *tables: NDArray[np.int64]
    ) -> list[int]:
        row = [0] * kernels.PLACES
        row[kernels.KIND], row[kernels.FROM], row[kernels.TO] = kind, source.at, to.at
        row[kernels.CHANNELS], row[kernels.ROW] = source.channels, source.row
        row[kernels.HEIGHT], row[kernels.WIDTH] = source.height, source.width
        row[kernels.OUT], row[kernels.PIXELS] = to.channels, to.height * to.width
        row[kernels.ACROSS], row[kernels.ROW_TO] = to.width, to.row
        row[kernels.SIZE], row[kernels.TABLE] = to.size, self._table
        self._tables += tables
        self._table += sum(map(len, tables))
        self._steps.append(row)
        return row
