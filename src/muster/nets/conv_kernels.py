"""Convolutions over images of uint8, forwards and backwards, as compiled code.

    forward:   image -> floats, channels innermost -> every layer's output -> features
    backward:  derivatives by features -> layer by layer, last first -> weights, per group of images

One image at a time goes through all layers while it is in the cache, so its bits do not depend on
the others; the gradient of the weights is summed up over the images of a group, in their order.

`layers` is int64 [L, 13], a row for each convolution with the columns below; its tables of offsets
lie in `tables` one after the other. An image's outputs lie in `kept`, layer after layer, [pixels,
channels]. Features are in torch's order, [channels, pixels].
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.conv_tile import COLUMNS, ROWS, _intrinsics, row_tile, rows_tile, sums_tile
from muster.nets.tile import absent, keep_with, noinline, part

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

PLACES = 13
(
    CHANNELS,
    REAL,
    HEIGHT,
    WIDTH,
    KERNEL,
    STRIDE,
    OUT,
    PIXELS,
    WEIGHT,
    BIAS,
    KEPT,
    TABLE,
    TURNED,
) = range(PLACES)
"""Columns of `layers`: channels that it reads, padded, and how many of them are real; height and
width of what it reads; width of its kernel, its stride; channels and pixels of its output; where
its weights and biases lie in the parameters; where its output lies in `kept`; where its tables lie
in `tables`: [pixels] where each pixel's patch begins, then [pixels] where its output lies; where
its weights lie in `turned`: [kernel, kernel, channels, out], then [out, kernel, kernel, channels].
"""

_ZERO = np.float32(0)
_SCALE = np.float32(1 / 255)
_STACKED = 4
"""Frames that Atari's observations are made of."""
_NO_FLOOR = np.float32(-np.inf)


@part
def _read_image(obs: Bytes, row: int, planes: bool, layers: Ints, image: Floats) -> None:
    """Write one image as floats from 0 to 1, [height, width, channels]."""
    noinline()
    channels, real, pixels = (
        layers[0, CHANNELS],
        layers[0, REAL],
        layers[0, HEIGHT] * layers[0, WIDTH],
    )
    flat = obs[row]
    if not planes and real == channels:
        for i in range(pixels * channels):
            image[i] = np.float32(flat[i]) * _SCALE
    elif planes and real == channels == _STACKED:  # written side by side this becomes vectors
        for i in range(pixels):
            to = i * _STACKED
            image[to] = np.float32(flat[i]) * _SCALE
            image[to + 1] = np.float32(flat[pixels + i]) * _SCALE
            image[to + 2] = np.float32(flat[2 * pixels + i]) * _SCALE
            image[to + 3] = np.float32(flat[3 * pixels + i]) * _SCALE
    else:
        for c in range(real):
            for i in range(pixels):
                x = flat[c * pixels + i] if planes else flat[i * real + c]
                image[i * channels + c] = np.float32(x) * _SCALE


@part
def _turn(params: Floats, layers: Ints, turned: Floats, backwards: bool) -> None:
    """Write the weights in the orders in which tiles read them."""
    noinline()
    for n in range(layers.shape[0]):
        channels, real, kernel, out = (
            layers[n, CHANNELS],
            layers[n, REAL],
            layers[n, KERNEL],
            layers[n, OUT],
        )
        size, at, to = kernel * kernel, layers[n, WEIGHT], layers[n, TURNED]
        for c in range(real):
            for i in range(size):
                place, place_of = to + (i * channels + c) * out, at + c * size + i
                for o in range(out):
                    turned[place + o] = params[place_of + o * real * size]
        if not backwards:
            continue
        to += size * channels * out
        for o in range(out):
            for i in range(size):
                place, place_of = to + (o * size + i) * channels, at + o * real * size + i
                for c in range(real):
                    turned[place + c] = params[place_of + c * size]


@part
def _convolve(
    x: Floats, x_at: int, kept: Floats, layer: Ints, tables: Ints, turned: Floats, params: Floats
) -> None:
    """Compute a layer's output of one image, with ReLU."""
    noinline()
    kernel, channels, out, pixels = layer[KERNEL], layer[CHANNELS], layer[OUT], layer[PIXELS]
    length, stride, at = kernel * channels, layer[WIDTH] * channels, layer[KEPT]
    patches = tables[layer[TABLE] : layer[TABLE] + pixels]
    places = tables[layer[TABLE] + pixels : layer[TABLE] + 2 * pixels]
    for column in range(0, out, COLUMNS):
        b_at, bias = layer[TURNED] + column, layer[BIAS] + column
        i = pixels - pixels
        while i + ROWS <= pixels:
            rows_tile(
                kept, at + column, places, x, x_at, patches, i, kernel, length, stride,
                turned, b_at, out, params, bias, _ZERO,
            )  # fmt: skip
            i += ROWS
        while i < pixels:
            row_tile(
                kept, at + column, places, x, x_at, patches, i, kernel, length, stride,
                turned, b_at, out, params, bias, _ZERO,
            )  # fmt: skip
            i += 1


@part
def _to_inputs(
    d: Floats, d_at: int, d_x: Floats, layer: Ints, tables: Ints, turned: Floats
) -> None:
    """Add what one image's derivatives by a layer's output are by what it read."""
    noinline()
    kernel, channels, out, pixels = layer[KERNEL], layer[CHANNELS], layer[OUT], layer[PIXELS]
    one = pixels // pixels
    size = kernel * kernel * channels
    weights = layer[TURNED] + size * out
    patches = tables[layer[TABLE] : layer[TABLE] + pixels]
    places = tables[layer[TABLE] + pixels : layer[TABLE] + 2 * pixels]
    for ky in range(kernel):
        for column in range(0, kernel * channels, COLUMNS):  # of one pixel of the kernel at a time
            to, b_at = (
                ky * layer[WIDTH] * channels + column,
                weights + ky * kernel * channels + column,
            )
            i = pixels - pixels
            while i + ROWS <= pixels:
                rows_tile(
                    d_x, to, patches, d, d_at, places, i, one, out, one,
                    turned, b_at, size, turned, -one, _NO_FLOOR,
                )  # fmt: skip
                i += ROWS
            while i < pixels:
                row_tile(
                    d_x, to, patches, d, d_at, places, i, one, out, one,
                    turned, b_at, size, turned, -one, _NO_FLOOR,
                )  # fmt: skip
                i += 1


@part
def _add_weights(
    d: Floats, d_at: int, x: Floats, x_at: int, layer: Ints, tables: Ints, sums: Floats
) -> None:
    """Add one image's gradient by a layer's weights, as in `turned`, and by its biases."""
    noinline()
    kernel, channels, out, pixels = layer[KERNEL], layer[CHANNELS], layer[OUT], layer[PIXELS]
    size = kernel * kernel * channels
    patches = tables[layer[TABLE] : layer[TABLE] + pixels]
    for ky in range(kernel):
        for column in range(0, kernel * channels, COLUMNS):
            from_at = x_at + ky * layer[WIDTH] * channels + column
            to = ky * kernel * channels + column
            for o in range(0, out, ROWS):
                sums_tile(sums, to + o * size, size, d, d_at + o, out, x, from_at, patches, pixels)
    biases = size * out
    for i in range(pixels):
        for o in range(out):
            sums[biases + o] += d[d_at + i * out + o]


@jit(absent)
def forward(
    params: Floats,
    layers: Ints,
    tables: Ints,
    turned: Floats,
    obs: Bytes,
    planes: bool,
    rows: Ints,
    image: Floats,
    kept: Floats,
    features: Floats,
) -> None:
    """Compute the features of n images.

    Args:
        params: The flat vector.
        layers: See above.
        tables: See above.
        turned: Is written: the weights as tiles read them.
        obs: [N, bytes of an image].
        planes: Whether channels come first in these.
        rows: [n], which of them.
        image: Room for one image.
        kept: [n, room], is written; or one row, if there is no way back.
        features: [n, channels * pixels of the last layer], is written.
    """
    _turn(params, layers, turned, False)
    last = layers[layers.shape[0] - 1]
    out, pixels = last[OUT], last[PIXELS]
    zero = out - out
    for i in range(rows.size):
        mine = kept[i % kept.shape[0]]
        _read_image(obs, rows[i], planes, layers, image)
        _convolve(image, zero, mine, layers[0], tables, turned, params)
        for n in range(1, layers.shape[0]):
            _convolve(mine, layers[n - 1, KEPT], mine, layers[n], tables, turned, params)
        for o in range(out):
            for p in range(pixels):
                features[i, o * pixels + p] = mine[last[KEPT] + p * out + o]


@part
def _through_relu(d: Floats, h: Floats) -> None:
    noinline()
    for i in range(d.size):
        x = d[i]  # read in any case: then this becomes vectors
        d[i] = _ZERO if h[i] <= _ZERO else x


@part
def _take_sums(layers: Ints, sums: Floats, grad: Floats) -> None:
    """Write sums of all layers to the gradient, in torch's order."""
    noinline()
    begin = layers[0, KEPT] - layers[0, KEPT]
    for n in range(layers.shape[0]):
        channels, real, kernel, out = (
            layers[n, CHANNELS],
            layers[n, REAL],
            layers[n, KERNEL],
            layers[n, OUT],
        )
        size, at = kernel * kernel, layers[n, WEIGHT]
        for o in range(out):
            for c in range(real):
                for i in range(size):
                    x = sums[begin + (o * size + i) * channels + c]
                    grad[at + (o * real + c) * size + i] = x
            grad[layers[n, BIAS] + o] = sums[begin + size * channels * out + o]
        begin += (size * channels + 1) * out


@jit(absent)
def backward(
    params: Floats,
    layers: Ints,
    tables: Ints,
    turned: Floats,
    obs: Bytes,
    planes: bool,
    rows: Ints,
    image: Floats,
    kept: Floats,
    d_features: Floats,
    d: Floats,
    sums: Floats,
    grads: Floats,
) -> None:
    """Write the gradient of the weights of each of some groups of images.

    Args:
        params: As in `forward`; so on for the next seven and `kept`.
        layers: See there.
        tables: See there.
        turned: See there.
        obs: See there.
        planes: See there.
        rows: See there.
        image: See there.
        kept: What `forward` left.
        d_features: [n, features].
        d: Room for derivatives by the outputs of one image, as in `kept`.
        sums: Room for a gradient.
        grads: [groups, size of the flat vector]; what belongs to these layers is overwritten.
    """
    _turn(params, layers, turned, True)
    count, depth = rows.size // grads.shape[0], layers.shape[0]
    last = layers[depth - 1]
    out, pixels = last[OUT], last[PIXELS]
    zero = out - out
    for group in range(grads.shape[0]):
        sums[:] = _ZERO
        for i in range(group * count, (group + 1) * count):
            mine = kept[i]
            d[:] = _ZERO
            for o in range(out):
                for p in range(pixels):
                    d[last[KEPT] + p * out + o] = d_features[i, o * pixels + p]
            _read_image(obs, rows[i], planes, layers, image)
            begin = sums.size
            for n in range(depth - 1, -1, -1):
                layer = layers[n]
                at, size = layer[KEPT], layer[OUT] * layer[PIXELS]
                begin -= (layer[KERNEL] * layer[KERNEL] * layer[CHANNELS] + 1) * layer[OUT]
                _through_relu(d[at : at + size], mine[at : at + size])
                if n == 0:
                    _add_weights(d, at, image, zero, layer, tables, sums[begin:])
                    continue
                before = layers[n - 1, KEPT]
                _add_weights(d, at, mine, before, layer, tables, sums[begin:])
                _to_inputs(d, at, d[before:], layer, tables, turned)
        _take_sums(layers, sums, grads[group])


for _kernel in (forward, backward):
    keep_with(_kernel, absent, _intrinsics, jit)
