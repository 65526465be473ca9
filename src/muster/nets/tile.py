"""The matrix product inside compiled kernels: a tile of 6 x 16 sums that stays in registers.

    C[6, 16] += A[6, depth] @ B[depth, 16]

    for k in range(depth):          one pass over k
        b = B[k, 0:16]              16 floats, one load: one AVX-512 register, or two of AVX2
        for r in range(6):          unrolled
            C[r, 0:16] = fma(A[r, k], b, C[r, 0:16])

Loops that numba compiles on its own load and store C at every k, and are 3 to 8 times as slow. 6
rows fit into the 16 registers of AVX2; 8 would be spilled there. AVX-512 has 32 registers of twice
the width: a tile of 6 x 64 reads each number of A once for 64 sums, and runs at the speed of the
multipliers, not of the loads; a tile of 12 x 16 computes the remaining columns.

Every element of C is one chain of fused multiply-adds in the order of k, whatever the number of
rows, the place in the tile, or the width of the CPU's vectors: its bits depend on nothing else.

The `intrinsic` functions write LLVM code directly, at compile time. All matrices are parts of flat
float32 arrays, given by their offset and the distance between rows.
"""

import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.jit import Kernel, jit
from muster.nets.vector_code import LANES, VectorCode, has_wide_registers

Array = NDArray[np.float32]

# Sizes of the wide and the narrow tile; AVX2 has registers only for the narrow one, so there the
# wide one is no wider. No bit depends on these.
WIDE, WIDE_ROWS, NARROW_ROWS = (4 * LANES, 6, 12) if has_wide_registers() else (LANES, 6, 6)
_NO_FLOOR = np.float32(-np.inf)
FEW = 2
"""Rows that have a separate tile: last layers are often this narrow."""

_FITS = 2**16
"""Numbers of A that stay in the second cache, beside B, while columns of B are processed; also the
largest distance in memory between the first and the last number of a column where A is read across
its rows: beyond it, cache lines are evicted before the next rows use the rest of them."""
_SHORTEST = 64
"""Least depth of a piece of A: sums are loaded and stored once for each piece."""


def _intrinsics() -> tuple[Callable[..., Any], ...] | None:
    """Return two wide and two narrow tiles, and the other intrinsics; None without numba."""
    try:
        code = VectorCode()
    except ImportError:  # `muster.jit` logs it
        return None
    intrinsic, types, cgutils, ir = code.intrinsic, code.types, code.cgutils, code.ir
    data, at, load, store = code.data, code.at, code.load, code.store
    shuffle, everywhere, vector = code.shuffle, code.everywhere, code.vector

    def make_tile(rows: int, width: int) -> Callable[..., Any]:
        @intrinsic  # type: ignore[untyped-decorator]
        def tile(
            typing: Any,
            c: Any,
            c_at: Any,
            c_row: Any,
            a: Any,
            a_at: Any,
            a_row: Any,
            a_k: Any,
            b: Any,
            b_at: Any,
            b_row: Any,
            depth: Any,
            start: Any,
            start_at: Any,
            start_step: Any,
            floor: Any,
            count: Any,
        ) -> Any:
            """C[count, width] = max(S + A[count, depth] @ B[depth, width], floor).

            A[r, k] is at a_at + r * a_row + k * a_k, so A may be stored in either order. S is the
            content of C; or, if start_step is not negative, start[start_at + r * start_step] all
            along row r. If `count` is less than `rows`, the last row is computed several times.
            """

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                c_at, c_row = args[1], args[2]
                a_at, a_row, a_k = args[4], args[5], args[6]
                b_at, b_row, depth = args[8], args[9], args[10]
                start_at, start_step, floor, count = args[12:16]
                size = c_at.type
                to_c = at(builder, data(context, builder, signature, args, 0), c_at)
                to_a = at(builder, data(context, builder, signature, args, 3), a_at)
                to_b = at(builder, data(context, builder, signature, args, 7), b_at)
                to_start = at(builder, data(context, builder, signature, args, 11), start_at)
                fma = code.fma_of(builder, vector, "v16f32")
                numbers = code.rows_below(builder, count, rows)
                columns = [ir.Constant(size, j) for j in range(0, width, LANES)]
                c_rows = [at(builder, to_c, builder.mul(r, c_row)) for r in numbers]
                a_rows = [at(builder, to_a, builder.mul(r, a_row)) for r in numbers]
                # LLVM keeps these variables in registers.
                sums = [[cgutils.alloca_once(builder, vector) for _ in columns] for _ in numbers]
                adds = builder.icmp_signed("<", start_step, ir.Constant(size, 0))
                with builder.if_else(adds) as (then, otherwise):
                    with then:
                        for row, totals in zip(c_rows, sums, strict=True):
                            for j, total in zip(columns, totals, strict=True):
                                builder.store(load(builder, at(builder, row, j)), total)
                    with otherwise:
                        for r, totals in zip(numbers, sums, strict=True):
                            place = at(builder, to_start, builder.mul(r, start_step))
                            x = everywhere(builder, builder.load(place))
                            for total in totals:
                                builder.store(x, total)
                with cgutils.for_range(builder, depth) as loop:
                    b_row_at = at(builder, to_b, builder.mul(loop.index, b_row))
                    b_lanes = [load(builder, at(builder, b_row_at, j)) for j in columns]
                    a_place = builder.mul(loop.index, a_k)
                    for row, totals in zip(a_rows, sums, strict=True):
                        x = everywhere(builder, builder.load(at(builder, row, a_place)))
                        for lanes, total in zip(b_lanes, totals, strict=True):
                            new = builder.call(fma, [x, lanes, builder.load(total)])
                            builder.store(new, total)
                lowest = everywhere(builder, floor)
                for row, totals in zip(c_rows, sums, strict=True):
                    for j, total in zip(columns, totals, strict=True):
                        place = at(builder, row, j)
                        code.store_above(builder, builder.load(total), lowest, place)
                return context.get_dummy_value()

            n = types.intp
            kinds = c, n, n, a, n, n, n, b, n, n, n, start, n, n, types.float32, n
            return types.void(*kinds), generate

        return tile  # type: ignore[no-any-return]

    @intrinsic  # type: ignore[untyped-decorator]
    def transpose_tile(
        typing: Any, c: Any, c_at: Any, c_row: Any, a: Any, a_at: Any, a_row: Any
    ) -> Any:
        """C[16, 16] = A[16, 16].T: swap the off-diagonal quarters, then those of the quarters..."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to_c = at(builder, data(context, builder, signature, args, 0), args[1])
            to_a = at(builder, data(context, builder, signature, args, 3), args[4])
            numbers = [ir.Constant(args[1].type, r) for r in range(LANES)]
            rows = [load(builder, at(builder, to_a, builder.mul(r, args[5]))) for r in numbers]
            for step in (8, 4, 2, 1):
                upper = [i if not i & step else LANES + i - step for i in range(LANES)]
                lower = [i + step if not i & step else LANES + i for i in range(LANES)]
                for r in range(LANES):
                    if not r & step:
                        pair = rows[r], rows[r + step]
                        rows[r] = shuffle(builder, *pair, upper)
                        rows[r + step] = shuffle(builder, *pair, lower)
            for r, row in zip(numbers, rows, strict=True):
                store(builder, row, at(builder, to_c, builder.mul(r, args[2])))
            return context.get_dummy_value()

        n = types.intp
        return types.void(c, n, n, a, n, n), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def spread16(typing: Any, c: Any, c_at: Any, x: Any) -> Any:
        """C[16] = x. numba's own loop takes steps of 32, which here means 16 single ones."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to_c = at(builder, data(context, builder, signature, args, 0), args[1])
            store(builder, everywhere(builder, args[2]), to_c)
            return context.get_dummy_value()

        return types.void(c, types.intp, types.float32), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c of three float32, rounded once."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.call(code.fma_of(builder, code.scalar, "f32"), args)

        return types.float32(types.float32, types.float32, types.float32), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def power_of_two(typing: Any, n: Any) -> Any:
        """Return 2**n as float32, of an int32 from -126 to 127: n is its exponent."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            biased = builder.add(args[0], ir.Constant(code.lane, 127))
            return builder.bitcast(builder.shl(biased, ir.Constant(code.lane, 23)), code.scalar)

        return types.float32(types.int32), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def noinline(typing: Any) -> Any:
        """Do not inline the calling kernel: inlined everywhere, it takes long to compile."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.function.attributes.add("noinline")
            return context.get_dummy_value()

        return types.void(), generate

    narrow = make_tile(NARROW_ROWS, LANES), make_tile(FEW, LANES)
    wide = narrow if WIDE == LANES else (make_tile(WIDE_ROWS, WIDE), make_tile(FEW, WIDE))
    return (*wide, *narrow, transpose_tile, spread16, fma, power_of_two, noinline)


def absent(*_: Any) -> Any:
    """Replace a kernel that cannot be compiled."""
    raise RuntimeError("this kernel has no NumPy twin: look at muster.nets.tile.FUSED first")


def _probe() -> None:
    """Do nothing: only tests whether `muster.jit` would compile it."""


_made = _intrinsics()
_wide, _wide_few, _narrow, _narrow_few, *_others = _made or (absent,) * 9
_transpose16, _spread16, fma, power_of_two, noinline = _others

FUSED: bool = _made is not None and jit(absent)(_probe) is not absent
"""Whether the kernels of this module are available: numba compiles, and can cache the result."""


def part(function: Kernel) -> Kernel:
    """Compile a function as a part of the kernels that call it, without its own cache on disk."""
    return _njit(function, "never")


def inlined(function: Kernel) -> Kernel:
    """Inline a function at its call: compiles faster, if there is only one."""
    return _njit(function, "always")


def _njit(function: Kernel, inline: str) -> Kernel:
    if not FUSED:
        return absent  # type: ignore[return-value]
    numba = importlib.import_module("numba")
    njit = numba.njit(error_model="numpy", inline=inline, no_cfunc_wrapper=True)
    compiled: Kernel = njit(function)
    return compiled


def keep_with(kernel: Any, *parts: Any) -> None:
    """Recompile a kernel when a file that one of its parts comes from has changed.

    numba checks only the kernel's own file. It would continue to run old code from other files,
    even after an update of muster.
    """
    kept = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if not hasattr(kept, "_source_stamp"):  # not compiled; or a numba with another kind of cache
        return
    functions = [getattr(x, "py_func", x) for x in (*parts, VectorCode.load)]
    files = sorted({function.__code__.co_filename for function in functions})
    digests = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files]
    kept._source_stamp = (kept._source_stamp, *digests)  # type: ignore[union-attr]


@part
def _strip(
    c: Array,
    c_at: int,
    c_row: int,
    a: Array,
    a_at: int,
    a_row: int,
    a_k: int,
    b: Array,
    b_at: int,
    b_row: int,
    m: int,
    depth: int,
    first: int,
    last: int,
    start: Array,
    start_at: int,
    start_step: int,
    floor: np.float32,
) -> None:
    """Compute the columns from `first` to `last` of a product, see `multiply`."""
    wide_end = first + (last - first) // WIDE * WIDE
    for i in range(0, m, WIDE_ROWS):
        to, at, s_at, left = c_at + i * c_row, a_at + i * a_row, start_at + i * start_step, m - i
        for j in range(first, wide_end, WIDE):
            if left > FEW:
                _wide(
                    c, to + j, c_row, a, at, a_row, a_k, b, b_at + j, b_row, depth,
                    start, s_at, start_step, floor, min(left, WIDE_ROWS),
                )  # fmt: skip
            else:
                _wide_few(
                    c, to + j, c_row, a, at, a_row, a_k, b, b_at + j, b_row, depth,
                    start, s_at, start_step, floor, left,
                )  # fmt: skip
    if WIDE == LANES:  # nothing is left
        return
    for i in range(0, m, NARROW_ROWS):
        to, at, s_at, left = c_at + i * c_row, a_at + i * a_row, start_at + i * start_step, m - i
        for j in range(wide_end, last, LANES):
            if left > FEW:
                _narrow(
                    c, to + j, c_row, a, at, a_row, a_k, b, b_at + j, b_row, depth,
                    start, s_at, start_step, floor, min(left, NARROW_ROWS),
                )  # fmt: skip
            else:
                _narrow_few(
                    c, to + j, c_row, a, at, a_row, a_k, b, b_at + j, b_row, depth,
                    start, s_at, start_step, floor, left,
                )  # fmt: skip


@part
def multiply(
    c: Array,
    c_at: int,
    c_row: int,
    a: Array,
    a_at: int,
    a_row: int,
    a_k: int,
    b: Array,
    b_at: int,
    b_row: int,
    m: int,
    n: int,
    depth: int,
    start: Array,
    start_at: int,
    start_step: int,
    floor: np.float32,
) -> None:
    """C[m, n] = max(S + A[m, depth] @ B[depth, n], floor), where n is a multiple of `LANES`.

    S is C itself, or a number for each row: a bias, or 0.

    Pass all offsets and sizes as variables: numba would compile again for each literal number.

    Args:
        c: Holds C, like a and b below.
        c_at: Offset of C.
        c_row: Distance between rows of C.
        a: Holds A.
        a_at: Offset of A.
        a_row: Distance between rows of A.
        a_k: Distance between columns of A.
        b: Holds B.
        b_at: Offset of B.
        b_row: Distance between rows of B.
        m: Rows of C.
        n: Columns of C.
        depth: Columns of A.
        start: Holds the initial values.
        start_at: Offset of the first row's initial value.
        start_step: Distance between the initial values of rows: 1; 0 if all rows have the same; -1
            to start from the content of C.
        floor: Lower values become this: 0 for ReLU, minus infinity for no limit.
    """
    noinline()
    piece = max(depth, 1)  # even without depth, C gets its initial values
    if a_row < a_k and depth * a_k > _FITS:
        piece = min(depth, max(_FITS // a_k, _SHORTEST))
    # One strip of columns at a time while all of A stays in the cache; otherwise pass A only once.
    strip = WIDE if m * depth <= _FITS else max(n, WIDE)
    for k in range(0, max(depth, 1), piece):
        more = min(piece, depth - k)
        step, low = start_step, floor
        if k > 0:
            step = start_step - start_step - 1  # continue from C; not a literal, see above
        if k + piece < depth:
            low = _NO_FLOOR
        for first in range(0, n, strip):
            _strip(
                c, c_at, c_row, a, a_at + k * a_k, a_row, a_k, b, b_at + k * b_row, b_row, m, more,
                first, min(first + strip, n), start, start_at, step, low,
            )  # fmt: skip


@part
def transpose(
    c: Array, c_at: int, c_row: int, a: Array, a_at: int, a_row: int, m: int, n: int
) -> None:
    """C[n, m] = A[m, n].T, where m and n are multiples of `LANES`."""
    noinline()
    for i in range(0, m, LANES):
        for j in range(0, n, LANES):
            _transpose16(c, c_at + j * c_row + i, c_row, a, a_at + i * a_row + j, a_row)


@part
def spread(c: Array, c_at: int, lanes: int, values: Array, first: int, m: int) -> None:
    """C[m, lanes] = values[first : first + m], each of them all along its row."""
    noinline()
    for i in range(m):
        for j in range(0, lanes, LANES):
            _spread16(c, c_at + i * lanes + j, values[first + i])


@part
def fill(array: Array, first: int, last: int, x: Any) -> None:
    """Set array[first:last] to x."""
    noinline()
    for i in range(first, last):
        array[i] = x
