"""Blocks of shared memory without names: written once, read by many, reused.

    owner:   pool.take(size) -> MemoryBlock, write -> descriptor to each reader once, then number
    reader:  MappedBlocks.view(number) -> copy -> report that it is free
    owner:   the last reader is done, or has exited -> back to the pool

A memfd has no name that could be left behind, and the kernel frees it with its last descriptor.
"""

import fcntl
import mmap
import os
import threading
from collections import defaultdict
from collections.abc import Callable

from muster.engines.memory import no_memory

PAGE = mmap.PAGESIZE
_KEPT_BYTES = 64 << 20
"""Free blocks are kept up to this total; fresh memory costs ten times as much as reused memory."""
_KEPT_BLOCKS = 32


class MemoryBlock:
    """Shared memory of this process, and the links that still read it."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd = _allocate(size)
        self._memory = mmap.mmap(self.fd, size)
        self.view = memoryview(self._memory)
        self.readers: set[object] = set()
        self.known_to: set[object] = set()
        """Links over which its descriptor was sent."""
        self.owned = True

    def close(self) -> None:
        """Free the memory; readers that mapped it keep it until they are done."""
        self.view.release()
        self._memory.close()
        os.close(self.fd)


class BlockPool:
    """The blocks of one process.

    Args:
        forget: Called with a block when it is closed; `known_to` lists the links to notify.
    """

    def __init__(self, forget: Callable[[MemoryBlock], None]) -> None:
        self._forget = forget
        self._lock = threading.Lock()
        self._free: dict[int, list[MemoryBlock]] = defaultdict(list)
        self._free_bytes = 0
        self._free_count = 0
        self._numbers = 0
        self._in_use: dict[int, MemoryBlock] = {}

    def take(self, size: int) -> MemoryBlock:
        """Return a block of at least `size` bytes that no link reads."""
        size_class = _size_class(size)
        with self._lock:
            free = self._free.get(size_class)
            if free:
                block = free.pop()
                self._free_bytes -= block.size
                self._free_count -= 1
            else:
                self._numbers += 1
                block = MemoryBlock(self._numbers, size_class)
            block.owned = True
            self._in_use[block.number] = block
        return block

    def lend(self, block: MemoryBlock, reader: object) -> bool:
        """Record that `reader` receives the block; True if it receives it for the first time."""
        with self._lock:
            block.readers.add(reader)
            new = reader not in block.known_to
            block.known_to.add(reader)
            return new

    def give_back(self, number: int, reader: object) -> None:
        """Record that `reader` is done with a block."""
        with self._lock:
            block = self._in_use.get(number)
            if block is None or reader not in block.readers:
                return
            block.readers.discard(reader)
            closed = self._settle(block)
        if closed:
            self._forget(block)

    def drop(self, block: MemoryBlock) -> None:
        """Record that the owner will not lend the block again."""
        with self._lock:
            block.owned = False
            closed = self._settle(block)
        if closed:
            self._forget(block)

    def reader_gone(self, reader: object) -> None:
        """Take back all blocks of a reader."""
        closed = []
        with self._lock:
            for block in list(self._in_use.values()):
                block.known_to.discard(reader)
                if reader in block.readers:
                    block.readers.discard(reader)
                    if self._settle(block):
                        closed.append(block)
            for blocks in self._free.values():
                for block in blocks:
                    block.known_to.discard(reader)
        for block in closed:
            self._forget(block)

    def close(self) -> None:
        """Free all memory."""
        with self._lock:
            blocks = [*self._in_use.values(), *(b for free in self._free.values() for b in free)]
            self._in_use.clear()
            self._free.clear()
        for block in blocks:
            block.close()

    def _settle(self, block: MemoryBlock) -> bool:
        """Put an unused block back into the pool; True if it was closed instead."""
        if block.owned or block.readers or self._in_use.pop(block.number, None) is None:
            return False
        room = self._free_bytes + block.size <= _KEPT_BYTES and self._free_count < _KEPT_BLOCKS
        if room:
            self._free[block.size].append(block)
            self._free_bytes += block.size
            self._free_count += 1
            return False
        block.close()
        return True


class MappedBlocks:
    """Blocks of another process that one link has received."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}

    def add(self, number: int, fd: int) -> None:
        """Map a block whose descriptor was received; closes the descriptor."""
        try:
            size = os.fstat(fd).st_size
            mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._views[number] = memoryview(mapped)

    def view(self, number: int) -> memoryview | None:
        """Return the block's bytes, or None if the block is unknown."""
        return self._views.get(number)

    def forget(self, number: int) -> None:
        """Unmap a block once its last view is released."""
        self._views.pop(number, None)

    def clear(self) -> None:
        """Unmap all blocks."""
        self._views.clear()


def _size_class(size: int) -> int:
    """Round up to pages, and beyond 64 kB to quarters of a power of two, so that blocks match."""
    pages = -(-size // PAGE) * PAGE
    if pages <= 1 << 16:
        return max(pages, PAGE)
    step = 1 << (pages.bit_length() - 3)
    return -(-pages // step) * step


def _allocate(size: int) -> int:
    try:
        fd = os.memfd_create("muster", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Allocated now: missing memory is an error here, not a SIGBUS during a write.
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.close(fd)
            raise
        # A reader that maps the block can rely on its size: the owner cannot shrink it.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return fd
    except OSError as error:
        raise no_memory(size, error) from error
