"""The LLVM code generation that `tile` and `conv_tile` share: vectors of 16 float32."""

import importlib
from typing import Any

LANES = 16
"""Floats in a vector: one register of AVX-512, two of AVX2. Matrices that a tile reads or writes
are padded to a multiple of it."""


def has_wide_registers() -> bool:
    """Whether this CPU has the 32 registers of AVX-512."""
    try:
        binding = importlib.import_module("llvmlite.binding")
        return bool(binding.get_host_cpu_features().get("avx512f"))
    except (ImportError, RuntimeError):  # RuntimeError: LLVM does not know this CPU
        return False


class VectorCode:
    """Generates code at compile time. Raises ImportError without numba."""

    def __init__(self) -> None:
        self.intrinsic = importlib.import_module("numba.extending").intrinsic
        self.types = importlib.import_module("numba").types
        self.cgutils = importlib.import_module("numba.core.cgutils")
        self.ir = importlib.import_module("llvmlite.ir")
        self.scalar = self.ir.FloatType()
        self.lane = self.ir.IntType(32)
        self.vector = self.ir.VectorType(self.scalar, LANES)
        self.undefined = self.ir.Constant(self.vector, self.ir.Undefined)

    def data(self, context: Any, builder: Any, signature: Any, args: Any, which: int) -> Any:
        """Return the pointer to the first element of an array argument."""
        array = self.cgutils.create_struct_proxy(signature.args[which])
        return array(context, builder, args[which]).data

    @staticmethod
    def at(builder: Any, pointer: Any, *places: Any) -> Any:
        """Return the pointer `places` elements further on."""
        for place in places:
            pointer = builder.gep(pointer, [place])
        return pointer

    def load(self, builder: Any, pointer: Any) -> Any:
        """Return the vector at a pointer."""
        return builder.load(builder.bitcast(pointer, self.vector.as_pointer()), align=4)

    def store(self, builder: Any, value: Any, pointer: Any) -> None:
        """Write a vector to a pointer."""
        builder.store(value, builder.bitcast(pointer, self.vector.as_pointer()), align=4)

    def shuffle(self, builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
        """Pick lanes: 0..15 are those of `first`, 16..31 those of `second`."""
        mask = self.ir.Constant(self.ir.VectorType(self.lane, LANES), lanes)
        return builder.shuffle_vector(first, second, mask)

    def everywhere(self, builder: Any, x: Any) -> Any:
        """Return a vector with one number in all lanes."""
        first = builder.insert_element(self.undefined, x, self.ir.Constant(self.lane, 0))
        return self.shuffle(builder, first, self.undefined, [0] * LANES)

    def fma_of(self, builder: Any, kind: Any, suffix: str) -> Any:
        """Return LLVM's fused multiply-add for a type of value."""
        function = self.ir.FunctionType(kind, [kind] * 3)
        return self.cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.{suffix}")

    def rows_below(self, builder: Any, count: Any, rows: int) -> list[Any]:
        """Return the numbers 0 to rows - 1, limited to count - 1: the last may be repeated."""
        last = builder.sub(count, self.ir.Constant(count.type, 1))
        numbers = [self.ir.Constant(count.type, 0)]
        for r in range(1, rows):
            row = self.ir.Constant(count.type, r)
            there = builder.icmp_signed("<", row, last)
            numbers.append(builder.select(there, row, last))
        return numbers

    def store_above(self, builder: Any, value: Any, lowest: Any, pointer: Any) -> None:
        """Write a vector, with lanes below `lowest` raised to it; NaN stays NaN."""
        is_low = builder.fcmp_ordered("<", value, lowest)
        self.store(builder, builder.select(is_low, lowest, value), pointer)
