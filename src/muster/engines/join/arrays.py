"""`RankArrays`: this rank's copy of the arrays that all ranks have, and what others published."""

import struct
import threading
from collections.abc import Sequence
from mmap import mmap
from typing import Any

from muster.engines.base import ROW
from muster.engines.futex import Word
from muster.engines.join.wire import FrameHead, Wire

Spans = Sequence[tuple[int, int]]
"""First and last byte (exclusive) of parts of the arrays."""

_SPAN = struct.Struct("<QQ")
_NUMBER = struct.Struct("<I")
_COUNTER = struct.Struct("<q")
_MOST_SPANS = 1 << 20


class RankArrays:
    """The memory, once the program has asked for it; until then, publications are kept.

    A rank that waits at a barrier publishes nothing more, so only a few are kept.

    Args:
        ranks: Number of ranks.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._memory: memoryview | None = None
        self._words: list[Word] = []
        self._early: list[tuple[int, int, Spans, bytes]] = []
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes of the arrays; 0 before the program has asked for them."""
        return 0 if self._memory is None else len(self._memory)

    def make(self, size: int) -> memoryview:
        """Return the memory, with everything that has arrived early."""
        memory = memoryview(mmap(-1, size))
        with self._lock:
            self._words = [Word(memory, rank * ROW) for rank in range(self._ranks)]
            self._memory = memory
            for rank, count, spans, data in self._early:
                self.write(rank, count, spans, memoryview(data))
            self._early.clear()
        return memory

    def payload(self, spans: Spans) -> list[Any]:
        """Return a publication of these bytes, without copying them."""
        assert self._memory is not None
        table = b"".join(_SPAN.pack(*span) for span in spans)
        parts = (self._memory[first:last] for first, last in spans)
        return [_NUMBER.pack(len(spans)) + table, *parts]

    def take(self, wire: Wire, head: FrameHead) -> list[Any]:
        """Read a publication to its place, and return its payload, to be passed on.

        Raises:
            ConnectionError: It is not what a rank of this run sends.
        """
        if head.size < _NUMBER.size or not 0 <= head.source < self._ranks:
            raise ConnectionError("a publication of nobody")
        (number,) = _NUMBER.unpack(wire.read(_NUMBER.size))
        if number > _MOST_SPANS:
            raise ConnectionError(f"{number:,} parts in one publication")
        table = bytes(wire.read(number * _SPAN.size))
        spans = list(_SPAN.iter_unpack(table))
        size = sum(last - first for first, last in spans)
        if head.size != _NUMBER.size + len(table) + size:
            raise ConnectionError("a publication of another size than it says")
        first_piece = _NUMBER.pack(number) + table
        with self._lock:
            memory = self._memory
            if memory is None:
                data = bytes(wire.read(size))
                self._early.append((head.source, head.number, spans, data))
                return [first_piece, data]
        parts = [memory[first:last] for first, last in self._checked(spans)]
        for part in parts:
            wire.read_into(part)
        self.count(head.source, head.number)
        return [first_piece, *parts]

    def accept(self, rank: int, count: int, data: memoryview) -> None:
        """Write a publication that came as one piece: what `payload` returns, joined.

        Raises:
            ConnectionError: It is not what a rank of this run sends.
        """
        (number,) = _NUMBER.unpack_from(data)
        start = _NUMBER.size + number * _SPAN.size
        spans = list(_SPAN.iter_unpack(data[_NUMBER.size : start]))
        if len(data) != start + sum(last - first for first, last in spans):
            raise ConnectionError("a publication of another size than it says")
        with self._lock:
            self.write(rank, count, spans, data[start:])

    def write(self, rank: int, count: int, spans: Spans, data: memoryview) -> None:
        """Write a rank's publication, then its counter."""
        assert self._memory is not None
        start = 0
        for first, last in self._checked(spans):
            self._memory[first:last] = data[start : start + last - first]
            start += last - first
        self.count(rank, count)

    def count(self, rank: int, count: int) -> None:
        """Set a rank's counter, and wake the thread that waits for it."""
        assert self._memory is not None
        _COUNTER.pack_into(self._memory, rank * ROW, count)
        self._words[rank].wake()

    def _checked(self, spans: Spans) -> Spans:
        if any(not 0 <= first <= last <= self.size for first, last in spans):
            raise ConnectionError("a publication outside the shared arrays")
        return spans
