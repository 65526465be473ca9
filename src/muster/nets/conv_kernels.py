"""Convolutions over uint8 images, forwards and backwards, as compiled code.

    forward:   image -> floats, channels innermost -> step after step -> features
    backward:  derivatives w.r.t. features -> the steps, last first -> gradient of the weights

Each image goes through all steps while it is in the cache, so its bits do not depend on the others;
the gradient of the weights is summed over the images, in order.

`steps` is int64 [S, PLACES], a row for each convolution, max-pool or ReLU. Steps read and write
buffers of pixels, [height, width, channels], some with a border of zeros, at offsets into one long
row of floats: first the data that the backward pass needs (`kept`, one row for each image), then
the data that images use one after another (`scratch`: the image itself, and the input of pools).
`tables` has the offsets of pixels in a buffer. Features are in torch's order, [channels, pixels].
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.conv_tile import (
    ROWS,
    SUM_ROWS,
    WIDE,
    _intrinsics,
    narrow_rows_tile,
    narrow_sums_tile,
    pool_tile,
    wide_rows_tile,
    wide_sums_tile,
)
from muster.nets.tile import absent, keep_with, noinline, part
from muster.nets.vector_code import LANES

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

CONVOLVE, POOL, RECTIFY = range(3)
"""Kinds of a step: a convolution; a max-pool of 3 x 3 pixels around every second pixel, of a buffer
with a border; a ReLU."""
PLAIN, WITH_RELU, ADDED = range(3)
"""The end of a convolution: nothing; ReLU; add the result to the existing values."""

PLACES = 21
(
    KIND,  # one of the kinds above
    END,  # of a convolution: one of the ends above
    FROM,  # offset of its input
    TO,  # offset of its output
    CHANNELS,  # of its input
    HEIGHT,  # of its input, without the border
    WIDTH,
    ROW,  # floats from one row of its input to the next
    KERNEL,  # width and height
    STRIDE,
    OUT,  # channels of its output
    PIXELS,  # of its output, without the border
    ACROSS,  # how many of them are side by side
    ROW_TO,  # floats from one row of its output to the next
    SIZE,  # floats of its output, with the border
    WEIGHT,  # offset of its weights in the parameters; of a pool, its choices among all choices
    BIAS,  # offset of its biases in the parameters
    PADDED,  # whether output and input have the same number of pixels, both with a border
    TABLE,  # offset of its tables: [pixels] of patches, [pixels] of results; see `_to_inputs`
    TURNED,  # offset of its weights in `turned`: [kernel, kernel, channels, out]; see `_to_inputs`
    SUMS,  # offset of its gradient in `sums`: [out, kernel, span], then [out] of the biases
) = range(PLACES)
"""Columns of `steps`."""

_ZERO = np.float32(0)
_SCALE = np.float32(1 / 255)
_STACKED = 4
"""Frames in an Atari observation."""
_NO_FLOOR = np.float32(-np.inf)
_POOLED = 3
"""Height and width of the input window of a pool."""


@part
def span_of(kernel: int, channels: int) -> int:
    """Return the floats of a gradient for one row of a kernel, rounded up to whole vectors."""
    return (kernel * channels + LANES - 1) // LANES * LANES


@part
def _read_image(obs: Bytes, row: int, planes: bool, first: Ints, begin: int, x: Floats) -> None:
    """Write one image as floats from 0 to 1; `begin` is the offset of its first pixel in x."""
    noinline()
    channels, height, width = first[CHANNELS], first[HEIGHT], first[WIDTH]
    flat, pixels = obs[row], height * width
    for y in range(height):
        to, at = begin + y * first[ROW], y * width
        if not planes:
            for i in range(width * channels):
                x[to + i] = np.float32(flat[at * channels + i]) * _SCALE
        elif channels == _STACKED:  # written out, because this form vectorises
            for i in range(width):
                x[to + i * _STACKED] = np.float32(flat[at + i]) * _SCALE
                x[to + i * _STACKED + 1] = np.float32(flat[pixels + at + i]) * _SCALE
                x[to + i * _STACKED + 2] = np.float32(flat[2 * pixels + at + i]) * _SCALE
                x[to + i * _STACKED + 3] = np.float32(flat[3 * pixels + at + i]) * _SCALE
        else:
            for c in range(channels):
                for i in range(width):
                    x[to + i * channels + c] = np.float32(flat[c * pixels + at + i]) * _SCALE


@part
def _turn(params: Floats, steps: Ints, turned: Floats, backwards: bool) -> None:
    """Write the weights in the orders in which tiles read them."""
    noinline()
    for n in range(steps.shape[0]):
        step = steps[n]
        if step[KIND] != CONVOLVE:
            continue
        channels, kernel, out = step[CHANNELS], step[KERNEL], step[OUT]
        size, at, to = kernel * kernel, step[WEIGHT], step[TURNED]
        for c in range(channels):
            for i in range(size):
                place, place_of = to + (i * channels + c) * out, at + c * size + i
                for o in range(out):
                    turned[place + o] = params[place_of + o * channels * size]
        if not backwards or n == 0:  # derivatives w.r.t. the image are never needed
            continue
        to += size * channels * out
        for o in range(out):
            for i in range(size):
                place = to + (o * size + i) * channels
                if step[PADDED]:
                    place = to + ((size - 1 - i) * out + o) * channels
                place_of = at + o * channels * size + i
                for c in range(channels):
                    turned[place + c] = params[place_of + c * size]


@part
def _multiply(
    c: Floats,
    c_at: int,
    c_rows: Ints,
    a: Floats,
    a_at: int,
    a_rows: Ints,
    segments: int,
    length: int,
    stride: int,
    b: Floats,
    b_at: int,
    b_row: int,
    columns: int,
    wide: bool,
    start: Floats,
    start_at: int,
    adds: bool,
    floor: np.float32,
) -> None:
    """Compute C[pixels, columns] tile by tile, see `conv_tile`: wide ones if columns allow it."""
    noinline()
    pixels = a_rows.size
    for column in range(0, columns, WIDE if wide else LANES):
        begin = start_at + column if start_at >= 0 else start_at
        for i in range(0, pixels, ROWS):
            if wide:
                wide_rows_tile(
                    c, c_at + column, c_rows, a, a_at, a_rows, i, min(ROWS, pixels - i),
                    segments, length, stride, b, b_at + column, b_row, start, begin, adds, floor,
                )  # fmt: skip
            else:
                narrow_rows_tile(
                    c, c_at + column, c_rows, a, a_at, a_rows, i, min(ROWS, pixels - i),
                    segments, length, stride, b, b_at + column, b_row, start, begin, adds, floor,
                )  # fmt: skip


@part
def _convolve(
    x: Floats, x_at: int, y: Floats, y_at: int, step: Ints, tables: Ints, turned: Floats,
    params: Floats,
) -> None:  # fmt: skip
    """Compute a layer's output for one image."""
    noinline()
    kernel, channels, out, pixels = step[KERNEL], step[CHANNELS], step[OUT], step[PIXELS]
    patches = tables[step[TABLE] : step[TABLE] + pixels]
    places = tables[step[TABLE] + pixels : step[TABLE] + 2 * pixels]
    floor = _ZERO if step[END] == WITH_RELU else _NO_FLOOR
    _multiply(
        y, y_at, places, x, x_at, patches, kernel, kernel * channels, step[ROW],
        turned, step[TURNED], out, out, out % WIDE == 0,
        params, step[BIAS], step[END] == ADDED, floor,
    )  # fmt: skip


@part
def _to_inputs(d: Floats, step: Ints, tables: Ints, turned: Floats) -> None:
    """Add the derivatives w.r.t. a layer's input, from those w.r.t. its output, for one image.

    In general they are scattered, pixel by pixel of the kernel, with weights [out, kernel, kernel,
    channels]. For a padded layer they are gathered instead, which reads and writes each pixel once:
    as a convolution of derivatives, with its own tables, by rotated weights [kernel, kernel, out,
    channels].
    """
    noinline()
    kernel, channels, out, pixels = step[KERNEL], step[CHANNELS], step[OUT], step[PIXELS]
    length, weights = kernel * channels, step[TURNED] + kernel * kernel * channels * out
    one, wide = pixels // pixels, channels % WIDE == 0
    first = tables[step[TABLE] : step[TABLE] + pixels]
    second = tables[step[TABLE] + pixels : step[TABLE] + 2 * pixels]
    if step[PADDED]:
        around = tables[step[TABLE] + 2 * pixels : step[TABLE] + 3 * pixels]
        inside = tables[step[TABLE] + 3 * pixels : step[TABLE] + 4 * pixels]
        _multiply(
            d, step[FROM], inside, d, step[TO], around, kernel, kernel * out, step[ROW_TO],
            turned, weights, channels, channels, wide, turned, -one, True, _NO_FLOOR,
        )  # fmt: skip
        return
    for ky in range(kernel):
        # A tile has the columns of one pixel of the kernel, so its rows never overlap.
        _multiply(
            d, step[FROM] + ky * step[ROW], first, d, step[TO], second, one, out, one,
            turned, weights + ky * length, kernel * length, length, wide,
            turned, -one, True, _NO_FLOOR,
        )  # fmt: skip


@part
def _add_weights(
    d: Floats, x: Floats, x_at: int, step: Ints, tables: Ints, sums: Floats
) -> None:  # fmt: skip
    """Add one image's gradient of a layer's weights and biases.

    Where a row of the kernel ends within a vector, the rest of the vector is summed but never read.
    """
    noinline()
    kernel, out, pixels = step[KERNEL], step[OUT], step[PIXELS]
    span = span_of(kernel, step[CHANNELS])
    channels, across = step[STRIDE] * step[CHANNELS], step[ACROSS]
    line, wide = step[STRIDE] * step[ROW], span % WIDE == 0
    places = tables[step[TABLE] + pixels : step[TABLE] + 2 * pixels]
    begins = step[TO] + places[0]
    for ky in range(kernel):
        for column in range(0, span, WIDE if wide else LANES):
            from_at = x_at + ky * step[ROW] + column
            to = step[SUMS] + ky * span + column
            for o in range(0, out, SUM_ROWS):
                at, begin = begins + o, to + o * kernel * span
                if wide:
                    wide_sums_tile(
                        sums, begin, kernel * span, d, at, step[ROW_TO], out,
                        x, from_at, line, channels, pixels // across, across,
                    )  # fmt: skip
                else:
                    narrow_sums_tile(
                        sums, begin, kernel * span, d, at, step[ROW_TO], out,
                        x, from_at, line, channels, pixels // across, across,
                    )  # fmt: skip
    biases = step[SUMS] + out * kernel * span
    for i in range(pixels):
        for o in range(out):
            sums[biases + o] += d[step[TO] + places[i] + o]


@part
def _pool(
    x: Floats, x_at: int, y: Floats, y_at: int, step: Ints, tables: Ints, chosen: Bytes
) -> None:
    """Write the largest of the 3 x 3 pixels around every second one, and its position."""
    noinline()
    channels, height, row = step[CHANNELS], step[HEIGHT], step[ROW]
    x[x_at : x_at + row] = _NO_FLOOR  # values outside are never the largest
    for y_in in range(1, height + 1):
        x[x_at + y_in * row : x_at + y_in * row + channels] = _NO_FLOOR
        x[x_at + (y_in + 1) * row - channels : x_at + (y_in + 1) * row] = _NO_FLOOR
    x[x_at + (height + 1) * row : x_at + (height + 2) * row] = _NO_FLOOR
    places = tables[step[TABLE] : step[TABLE] + step[PIXELS]]
    across = step[ACROSS]
    for i in range(step[PIXELS]):
        at = x_at + 2 * (i // across) * row + 2 * (i % across) * channels
        to, note = y_at + places[i], step[WEIGHT] + i * channels
        for c in range(0, channels, LANES):
            pool_tile(y, to + c, chosen, note + c, x, at + c, row, channels)


@part
def _unpool(d: Floats, step: Ints, tables: Ints, chosen: Bytes) -> None:
    """Write the derivatives w.r.t. a pool's input: those of the result, at the chosen pixels."""
    noinline()
    channels, across, begin = step[CHANNELS], step[ACROSS], step[FROM]
    places = tables[step[TABLE] : step[TABLE] + step[PIXELS]]
    d[begin : begin + (step[HEIGHT] + 2) * step[ROW]] = _ZERO
    begin += step[ROW] + channels
    for i in range(step[PIXELS]):
        top, left = 2 * (i // across) - 1, 2 * (i % across) - 1
        at, note = step[TO] + places[i], step[WEIGHT] + i * channels
        for c in range(channels):
            dy, dx = chosen[note + c] // _POOLED, chosen[note + c] % _POOLED
            d[begin + (top + dy) * step[ROW] + (left + dx) * channels + c] += d[at + c]


@part
def _rectify(y: Floats, x: Floats) -> None:
    noinline()
    for i in range(y.size):
        y[i] = _ZERO if x[i] < _ZERO else x[i]  # NaN stays NaN


@part
def _through_relu(d: Floats, h: Floats) -> None:
    noinline()
    for i in range(d.size):
        x = d[i]  # read unconditionally, so that the loop vectorises
        d[i] = _ZERO if h[i] <= _ZERO else x


@part
def _add_through_relu(d_x: Floats, d: Floats, h: Floats) -> None:
    noinline()
    for i in range(d.size):
        x = d[i]
        d_x[i] += _ZERO if h[i] <= _ZERO else x


@jit(absent)
def forward(
    params: Floats,
    steps: Ints,
    tables: Ints,
    turned: Floats,
    obs: Bytes,
    planes: bool,
    rows: Ints,
    scratch: Floats,
    kept: Floats,
    chosen: Bytes,
    features: Floats,
) -> None:
    """Compute the features of n images.

    Args:
        params: The flat parameter vector.
        steps: See above.
        tables: See above. Last come the [pixels] of the image and of the features.
        turned: Output: the weights in the order of the tiles.
        obs: [N, bytes of an image].
        planes: Whether the channels of an image come first.
        rows: [n], the images to use.
        scratch: Room for one image. Its borders are 0, like those of `kept`.
        kept: [n, room], output; or one row, if there is no backward pass.
        chosen: [n, choices of pools], output; or one row.
        features: [n, channels * pixels of the last step], output.
    """
    _turn(params, steps, turned, False)
    first, last, room = steps[0], steps[steps.shape[0] - 1], kept.shape[1]
    out, pixels = last[OUT], last[PIXELS]
    ends = tables[tables.size - pixels :]
    begin = tables[tables.size - pixels - 1]
    for i in range(rows.size):
        mine, choices = kept[i % kept.shape[0]], chosen[i % chosen.shape[0]]
        _read_image(obs, rows[i], planes, first, begin, scratch)
        for n in range(steps.shape[0]):
            step = steps[n]
            x, x_at = (mine, step[FROM]) if step[FROM] < room else (scratch, step[FROM] - room)
            y, y_at = (mine, step[TO]) if step[TO] < room else (scratch, step[TO] - room)
            if step[KIND] == CONVOLVE:
                _convolve(x, x_at, y, y_at, step, tables, turned, params)
            elif step[KIND] == POOL:
                _pool(x, x_at, y, y_at, step, tables, choices)
            else:
                _rectify(y[y_at : y_at + step[SIZE]], x[x_at : x_at + step[SIZE]])
        for o in range(out):
            for p in range(pixels):
                features[i, o * pixels + p] = mine[last[TO] + ends[p] + o]


@part
def _take_sums(steps: Ints, sums: Floats, grad: Floats) -> None:
    """Write the sums of all layers to the gradient, in torch's order."""
    noinline()
    for n in range(steps.shape[0]):
        step = steps[n]
        if step[KIND] != CONVOLVE:
            continue
        channels, kernel, out = step[CHANNELS], step[KERNEL], step[OUT]
        span = span_of(kernel, channels)
        size, at, begin = kernel * kernel, step[WEIGHT], step[SUMS]
        for o in range(out):
            for c in range(channels):
                for ky in range(kernel):
                    for kx in range(kernel):
                        x = sums[begin + (o * kernel + ky) * span + kx * channels + c]
                        grad[at + (o * channels + c) * size + ky * kernel + kx] = x
            grad[step[BIAS] + o] = sums[begin + out * kernel * span + o]


@jit(absent)
def backward(
    params: Floats,
    steps: Ints,
    tables: Ints,
    turned: Floats,
    obs: Bytes,
    planes: bool,
    rows: Ints,
    scratch: Floats,
    kept: Floats,
    chosen: Bytes,
    d_features: Floats,
    d: Floats,
    sums: Floats,
    grad: Floats,
) -> None:
    """Write the gradient of the weights.

    Args:
        params: As in `forward`, like the next seven.
        steps: See there.
        tables: See there.
        turned: See there.
        obs: See there.
        planes: See there.
        rows: See there.
        scratch: See there.
        kept: As written by `forward`.
        chosen: As written by `forward`.
        d_features: [n, features].
        d: Room for the derivatives w.r.t. all data of one image in `kept` and `scratch`.
        sums: Room for a gradient.
        grad: The size of the flat vector; the part of these layers is overwritten.
    """
    _turn(params, steps, turned, True)
    first, last, room = steps[0], steps[steps.shape[0] - 1], kept.shape[1]
    out, pixels = last[OUT], last[PIXELS]
    ends = tables[tables.size - pixels :]
    begin = tables[tables.size - pixels - 1]
    sums[:] = _ZERO
    for i in range(rows.size):
        mine = kept[i]
        d[:room] = _ZERO
        for o in range(out):
            for p in range(pixels):
                d[last[TO] + ends[p] + o] = d_features[i, o * pixels + p]
        _read_image(obs, rows[i], planes, first, begin, scratch)
        for n in range(steps.shape[0] - 1, -1, -1):
            step = steps[n]
            at, to, size = step[FROM], step[TO], step[SIZE]
            if step[KIND] == POOL:
                _unpool(d, step, tables, chosen[i])
            elif step[KIND] == RECTIFY:
                _add_through_relu(d[at : at + size], d[to : to + size], mine[to : to + size])
            else:
                if step[END] == WITH_RELU:
                    _through_relu(d[to : to + size], mine[to : to + size])
                if n == 0:
                    _add_weights(d, scratch, at - room, step, tables, sums)
                else:
                    _add_weights(d, mine, at, step, tables, sums)
                    _to_inputs(d, step, tables, turned)
    _take_sums(steps, sums, grad)


for _kernel in (forward, backward):
    keep_with(_kernel, absent, _intrinsics, jit)
