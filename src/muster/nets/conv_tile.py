"""The products inside a convolution: tiles of 8 x 32 sums whose rows lie where a table says.

    rows_tile   C[8 pixels, 32] += A[8 pixels, depth] @ B[depth, 32]: forwards, and to the inputs
    sums_tile   C[8, 32] += A[pixels, 8].T @ B[pixels, 32]: the gradient of the weights

A pixel of the result reads a patch of the image: some segments that are contiguous, one for each
row of the kernel. So patches are read where they lie, and never copied side by side. As in `tile`,
every element of C is one chain of fused multiply-adds in the order of depth, or of pixels.
"""

import importlib
from collections.abc import Callable
from typing import Any

from muster.nets.tile import LANES, absent

ROWS = 8
"""Rows of a tile; what is left over goes one by one."""
COLUMNS = 2 * LANES
"""Columns of a tile: channels come in a multiple of it."""


def _intrinsics() -> tuple[Callable[..., Any], ...] | None:
    """Return `rows_tile` of 8 rows and of 1, and `sums_tile`; None without numba."""
    try:
        intrinsic = importlib.import_module("numba.extending").intrinsic
        types = importlib.import_module("numba").types
        cgutils = importlib.import_module("numba.core.cgutils")
        ir = importlib.import_module("llvmlite.ir")
    except ImportError:  # `muster.jit` says it in the log
        return None

    scalar, lane = ir.FloatType(), ir.IntType(32)
    vector = ir.VectorType(scalar, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    nowhere = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)

    def data(context: Any, builder: Any, signature: Any, args: Any, which: int) -> Any:
        array = cgutils.create_struct_proxy(signature.args[which])
        return array(context, builder, args[which]).data

    def at(builder: Any, pointer: Any, *places: Any) -> Any:
        for place in places:
            pointer = builder.gep(pointer, [place])
        return pointer

    def load(builder: Any, pointer: Any) -> Any:
        return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)

    def store(builder: Any, value: Any, pointer: Any) -> None:
        builder.store(value, builder.bitcast(pointer, vector.as_pointer()), align=4)

    def everywhere(builder: Any, x: Any) -> Any:
        first = builder.insert_element(undefined, x, ir.Constant(lane, 0))
        return builder.shuffle_vector(first, undefined, nowhere)

    def halves(builder: Any, pointer: Any) -> list[Any]:
        """Return pointers to both vectors of a row of a tile."""
        return [pointer, at(builder, pointer, ir.Constant(ir.IntType(64), LANES))]

    def fma_of(builder: Any) -> Any:
        kind = ir.FunctionType(vector, [vector] * 3)
        return cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")

    def add(builder: Any, fma: Any, x: Any, b: list[Any], sums: list[Any]) -> None:
        for lanes, total in zip(b, sums, strict=True):
            builder.store(builder.call(fma, [x, lanes, builder.load(total)]), total)

    def make_rows_tile(rows: int) -> Callable[..., Any]:
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
            segments: Any,
            length: Any,
            stride: Any,
            b: Any,
            b_at: Any,
            b_row: Any,
            start: Any,
            start_at: Any,
            floor: Any,
        ) -> Any:
            """C[r] = max(S + A[r] @ B, floor), where row r of C is at c_at + c_rows[first + r].

            A[r] are `segments` of `length` numbers, `stride` apart, from a_at + a_rows[first + r]
            on. S is start[start_at : start_at + 32] in each row, or C itself if start_at < 0.
            """

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                c_at, a_at, first = args[1], args[4], args[6]
                segments, length, stride = args[7], args[8], args[9]
                b_at, b_row = args[11], args[12]
                start_at, floor = args[14], args[15]
                to_c = at(builder, data(context, builder, signature, args, 0), c_at)
                c_table = at(builder, data(context, builder, signature, args, 2), first)
                to_a = at(builder, data(context, builder, signature, args, 3), a_at)
                a_table = at(builder, data(context, builder, signature, args, 5), first)
                to_b = at(builder, data(context, builder, signature, args, 10), b_at)
                to_start = at(builder, data(context, builder, signature, args, 13), start_at)
                fma = fma_of(builder)
                numbers = [ir.Constant(c_at.type, r) for r in range(rows)]
                c_places = [
                    halves(builder, at(builder, to_c, builder.load(at(builder, c_table, r))))
                    for r in numbers
                ]
                a_places = [
                    at(builder, to_a, builder.load(at(builder, a_table, r))) for r in numbers
                ]
                sums = [[cgutils.alloca_once(builder, vector) for _ in range(2)] for _ in numbers]
                adds = builder.icmp_signed("<", start_at, ir.Constant(start_at.type, 0))
                with builder.if_else(adds) as (then, otherwise):
                    with then:
                        for places, totals in zip(c_places, sums, strict=True):
                            for place, total in zip(places, totals, strict=True):
                                builder.store(load(builder, place), total)
                    with otherwise:
                        begin = [load(builder, x) for x in halves(builder, to_start)]
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
                        b_lanes = [load(builder, x) for x in halves(builder, b_place)]
                        for place, totals in zip(a_segment, sums, strict=True):
                            x = everywhere(builder, builder.load(at(builder, place, k)))
                            add(builder, fma, x, b_lanes, totals)
                lowest = everywhere(builder, floor)
                for places, totals in zip(c_places, sums, strict=True):
                    for place, total in zip(places, totals, strict=True):
                        x = builder.load(total)
                        is_low = builder.fcmp_ordered("<", x, lowest)  # NaN stays NaN
                        store(builder, builder.select(is_low, lowest, x), place)
                return context.get_dummy_value()

            n = types.intp
            kinds = c, n, c_rows, a, n, a_rows, n, n, n, n, b, n, n, start, n, types.float32
            return types.void(*kinds), generate

        return tile  # type: ignore[no-any-return]

    @intrinsic  # type: ignore[untyped-decorator]
    def sums_tile(
        typing: Any,
        c: Any,
        c_at: Any,
        c_row: Any,
        a: Any,
        a_at: Any,
        a_row: Any,
        b: Any,
        b_at: Any,
        b_rows: Any,
        depth: Any,
    ) -> Any:
        """C[8, 32] += A[depth, 8].T @ B[depth, 32], where row k of B is at b_at + b_rows[k]."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            c_at, c_row, a_at = args[1], args[2], args[4]
            a_row, b_at, depth = args[5], args[7], args[9]
            to_c = at(builder, data(context, builder, signature, args, 0), c_at)
            to_a = at(builder, data(context, builder, signature, args, 3), a_at)
            to_b = at(builder, data(context, builder, signature, args, 6), b_at)
            table = data(context, builder, signature, args, 8)
            fma = fma_of(builder)
            numbers = [ir.Constant(c_at.type, r) for r in range(ROWS)]
            places = [halves(builder, at(builder, to_c, builder.mul(r, c_row))) for r in numbers]
            sums = [[cgutils.alloca_once(builder, vector) for _ in range(2)] for _ in numbers]
            for row, totals in zip(places, sums, strict=True):
                for place, total in zip(row, totals, strict=True):
                    builder.store(load(builder, place), total)
            with cgutils.for_range(builder, depth) as loop:
                b_place = at(builder, to_b, builder.load(at(builder, table, loop.index)))
                b_lanes = [load(builder, x) for x in halves(builder, b_place)]
                a_place = at(builder, to_a, builder.mul(loop.index, a_row))
                for r, totals in zip(numbers, sums, strict=True):
                    x = everywhere(builder, builder.load(at(builder, a_place, r)))
                    add(builder, fma, x, b_lanes, totals)
            for row, totals in zip(places, sums, strict=True):
                for place, total in zip(row, totals, strict=True):
                    store(builder, builder.load(total), place)
            return context.get_dummy_value()

        n = types.intp
        return types.void(c, n, n, a, n, n, b, n, b_rows, n), generate

    return make_rows_tile(ROWS), make_rows_tile(1), sums_tile


rows_tile, row_tile, sums_tile = _intrinsics() or (absent,) * 3
