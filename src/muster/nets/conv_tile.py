"""The products inside a convolution, in tiles whose rows are located by tables; and a max-pool.

    rows_tile   C[pixels, columns] = S + A[pixels, depth] @ B[depth, columns]: forwards, and back
                to the input of a layer
    sums_tile   C[channels, columns] += A[pixels, channels].T @ B[pixels, columns]: the gradient of
                the weights
    pool_tile   the largest of 3 x 3 pixels, channel by channel

A pixel of the result reads a patch of the image: one contiguous segment for each row of the kernel.
So patches are read in place, and never copied side by side. As in `tile`, every element of C is one
chain of fused multiply-adds in the order of depth, or of pixels: no bit depends on the size of a
tile, which is chosen to fit the registers of the CPU.
"""

from collections.abc import Callable
from typing import Any

from muster.nets.tile import absent
from muster.nets.vector_code import LANES, VectorCode, has_wide_registers

# AVX2 has 16 registers, two for each vector: a wider tile would be spilled, so wide equals narrow.
WIDE, ROWS, SUM_ROWS = (2 * LANES, 8, 8) if has_wide_registers() else (LANES, 6, 4)
"""Columns of the wide tiles, used if the channels are a multiple of it; rows of `rows_tile`; and
rows of `sums_tile`: the number of channels is a multiple of them."""


def _intrinsics() -> tuple[Callable[..., Any], ...] | None:
    """Return `rows_tile` and `sums_tile`, wide and narrow, and `pool_tile`; None without numba."""
    try:
        code = VectorCode()
    except ImportError:  # `muster.jit` logs it
        return None
    intrinsic, types, cgutils, ir = code.intrinsic, code.types, code.cgutils, code.ir
    data, at, load = code.data, code.at, code.load

    def vectors_at(builder: Any, pointer: Any, width: int) -> list[Any]:
        """Return pointers to the vectors of a row of a tile."""
        size = ir.IntType(64)
        return [at(builder, pointer, ir.Constant(size, j)) for j in range(0, width, LANES)]

    def add(builder: Any, fma: Any, x: Any, b: list[Any], sums: list[Any]) -> None:
        for lanes, total in zip(b, sums, strict=True):
            builder.store(builder.call(fma, [x, lanes, builder.load(total)]), total)

    def sums_of(builder: Any, rows: list[Any], width: int) -> list[list[Any]]:
        """Return variables for the sums of a tile, which LLVM keeps in registers."""
        count = range(width // LANES)
        return [[cgutils.alloca_once(builder, code.vector) for _ in count] for _ in rows]

    def make_rows_tile(width: int) -> Callable[..., Any]:
        @intrinsic  # type: ignore[untyped-decorator]
        def tile(
            typing: Any,
            c: Any,
            c_at: Any,
            c_rows: Any,
            a: Any,
            a_at: Any,
            a_rows: Any,
            first: Any,
            count: Any,
            segments: Any,
            length: Any,
            stride: Any,
            b: Any,
            b_at: Any,
            b_row: Any,
            start: Any,
            start_at: Any,
            adds: Any,
            floor: Any,
        ) -> Any:
            """C[r] = max(S + A[r] @ B, floor), where row r of C is at c_at + c_rows[first + r].

            A[r] are `segments` of `length` numbers, `stride` apart, starting at a_at + a_rows[first
            + r]. S is start[start_at : start_at + width] in each row, or C itself if `adds`, or, if
            also start_at is not negative, their sum. If `count` is less than `ROWS`, the last row
            is computed several times.
            """

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                c_at, a_at, first, count = args[1], args[4], args[6], args[7]
                segments, length, stride = args[8], args[9], args[10]
                b_at, b_row = args[12], args[13]
                start_at, adds, floor = args[15], args[16], args[17]
                to_c = at(builder, data(context, builder, signature, args, 0), c_at)
                c_table = at(builder, data(context, builder, signature, args, 2), first)
                to_a = at(builder, data(context, builder, signature, args, 3), a_at)
                a_table = at(builder, data(context, builder, signature, args, 5), first)
                to_b = at(builder, data(context, builder, signature, args, 11), b_at)
                to_start = at(builder, data(context, builder, signature, args, 14), start_at)
                fma = code.fma_of(builder, code.vector, "v16f32")
                numbers = code.rows_below(builder, count, ROWS)
                c_places = [
                    vectors_at(
                        builder, at(builder, to_c, builder.load(at(builder, c_table, r))), width
                    )
                    for r in numbers
                ]
                a_places = [
                    at(builder, to_a, builder.load(at(builder, a_table, r))) for r in numbers
                ]
                sums = sums_of(builder, numbers, width)
                has_start = builder.icmp_signed(">=", start_at, ir.Constant(start_at.type, 0))
                with builder.if_else(adds) as (then, otherwise):
                    with then:
                        for places, totals in zip(c_places, sums, strict=True):
                            for place, total in zip(places, totals, strict=True):
                                builder.store(load(builder, place), total)
                        with builder.if_then(has_start):
                            begin = [load(builder, x) for x in vectors_at(builder, to_start, width)]
                            for totals in sums:
                                for x, total in zip(begin, totals, strict=True):
                                    builder.store(builder.fadd(builder.load(total), x), total)
                    with otherwise:
                        begin = [load(builder, x) for x in vectors_at(builder, to_start, width)]
                        for totals in sums:
                            for x, total in zip(begin, totals, strict=True):
                                builder.store(x, total)
                with cgutils.for_range(builder, segments) as outer:
                    b_first = builder.mul(builder.mul(outer.index, length), b_row)
                    b_segment = at(builder, to_b, b_first)
                    a_first = builder.mul(outer.index, stride)
                    a_segment = [at(builder, place, a_first) for place in a_places]
                    with cgutils.for_range(builder, length) as inner:
                        k = inner.index
                        b_place = at(builder, b_segment, builder.mul(k, b_row))
                        b_lanes = [load(builder, x) for x in vectors_at(builder, b_place, width)]
                        for place, totals in zip(a_segment, sums, strict=True):
                            x = code.everywhere(builder, builder.load(at(builder, place, k)))
                            add(builder, fma, x, b_lanes, totals)
                lowest = code.everywhere(builder, floor)
                for places, totals in zip(c_places, sums, strict=True):
                    for place, total in zip(places, totals, strict=True):
                        code.store_above(builder, builder.load(total), lowest, place)
                return context.get_dummy_value()

            n = types.intp
            rows = c, n, c_rows, a, n, a_rows, n, n, n, n, n, b, n, n
            return types.void(*rows, start, n, types.boolean, types.float32), generate

        return tile  # type: ignore[no-any-return]

    def make_sums_tile(width: int) -> Callable[..., Any]:
        @intrinsic  # type: ignore[untyped-decorator]
        def tile(
            typing: Any,
            c: Any,
            c_at: Any,
            c_row: Any,
            a: Any,
            a_at: Any,
            a_line: Any,
            a_step: Any,
            b: Any,
            b_at: Any,
            b_line: Any,
            b_step: Any,
            lines: Any,
            length: Any,
        ) -> Any:
            """C[SUM_ROWS, width] += A[pixels, SUM_ROWS].T @ B[pixels, width].

            Pixel x of line y is at a_at + y * a_line + x * a_step of A, and likewise for B.
            """

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                c_at, c_row, a_at, b_at = args[1], args[2], args[4], args[8]
                a_line, a_step, b_line, b_step = args[5], args[6], args[9], args[10]
                to_c = at(builder, data(context, builder, signature, args, 0), c_at)
                to_a = at(builder, data(context, builder, signature, args, 3), a_at)
                to_b = at(builder, data(context, builder, signature, args, 7), b_at)
                fma = code.fma_of(builder, code.vector, "v16f32")
                numbers = [ir.Constant(c_at.type, r) for r in range(SUM_ROWS)]
                places = [
                    vectors_at(builder, at(builder, to_c, builder.mul(r, c_row)), width)
                    for r in numbers
                ]
                sums = sums_of(builder, numbers, width)
                for row, totals in zip(places, sums, strict=True):
                    for place, total in zip(row, totals, strict=True):
                        builder.store(load(builder, place), total)
                with cgutils.for_range(builder, args[11]) as line:
                    a_first = at(builder, to_a, builder.mul(line.index, a_line))
                    b_first = at(builder, to_b, builder.mul(line.index, b_line))
                    with cgutils.for_range(builder, args[12]) as loop:
                        b_place = at(builder, b_first, builder.mul(loop.index, b_step))
                        b_lanes = [load(builder, x) for x in vectors_at(builder, b_place, width)]
                        a_place = at(builder, a_first, builder.mul(loop.index, a_step))
                        for r, totals in zip(numbers, sums, strict=True):
                            x = code.everywhere(builder, builder.load(at(builder, a_place, r)))
                            add(builder, fma, x, b_lanes, totals)
                for row, totals in zip(places, sums, strict=True):
                    for place, total in zip(row, totals, strict=True):
                        code.store(builder, builder.load(total), place)
                return context.get_dummy_value()

            n = types.intp
            return types.void(c, n, n, a, n, n, n, b, n, n, n, n, n), generate

        return tile  # type: ignore[no-any-return]

    @intrinsic  # type: ignore[untyped-decorator]
    def pool_tile(
        typing: Any,
        c: Any,
        c_at: Any,
        chosen: Any,
        chosen_at: Any,
        a: Any,
        a_at: Any,
        a_line: Any,
        a_step: Any,
    ) -> Any:
        """C[16] = the largest of 3 x 3 pixels of A for each channel; `chosen` is its index, 0 to 8.

        The first of equal pixels is chosen, but the middle one if all are -infinity; a NaN is
        chosen, and propagates.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            c_at, chosen_at, a_at, a_line, a_step = args[1], args[3], args[5], args[6], args[7]
            to_a = at(builder, data(context, builder, signature, args, 4), a_at)
            whole = ir.VectorType(code.lane, LANES)
            best = ir.Constant(code.vector, [float("-inf")] * LANES)
            which = ir.Constant(whole, [4] * LANES)
            for number in range(9):
                dy, dx = (ir.Constant(a_at.type, n) for n in divmod(number, 3))
                place = at(builder, to_a, builder.mul(dy, a_line), builder.mul(dx, a_step))
                x = load(builder, place)
                is_larger = builder.fcmp_ordered(">", x, best)
                takes = builder.or_(is_larger, builder.fcmp_unordered("uno", x, x))
                best = builder.select(takes, x, best)
                which = builder.select(takes, ir.Constant(whole, [number] * LANES), which)
            to_c = at(builder, data(context, builder, signature, args, 0), c_at)
            code.store(builder, best, to_c)
            few = ir.VectorType(ir.IntType(8), LANES)
            to = at(builder, data(context, builder, signature, args, 2), chosen_at)
            to = builder.bitcast(to, few.as_pointer())
            builder.store(builder.trunc(which, few), to, align=1)
            return context.get_dummy_value()

        n = types.intp
        return types.void(c, n, chosen, n, a, n, n, n), generate

    narrow = make_rows_tile(LANES), make_sums_tile(LANES)
    wide = narrow if WIDE == LANES else (make_rows_tile(WIDE), make_sums_tile(WIDE))
    return wide[0], narrow[0], wide[1], narrow[1], pool_tile


wide_rows_tile, narrow_rows_tile, wide_sums_tile, narrow_sums_tile, pool_tile = (
    _intrinsics() or (absent,) * 5
)
