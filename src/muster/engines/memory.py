"""Memory that a parent and all nodes of a run share; it is freed with the last of them."""

import mmap
import os
from multiprocessing import reduction
from typing import Any

from muster.errors import MusterError


class SharedMemoryError(MusterError, OSError):
    """The system has no memory, or no descriptor, for a message."""


class SharedMemory:
    """A memfd: it has no name that could be left behind; new processes receive its descriptor.

    Its size is zero at first and grows on demand; written bytes stay unchanged, in other processes
    and in those that map it later.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mapped: list[mmap.mmap] = []

    @classmethod
    def create(cls) -> "SharedMemory":
        """Make an empty one."""
        try:
            return cls(os.memfd_create("muster-shared", os.MFD_CLOEXEC))
        except OSError as error:
            raise no_memory(0, error) from error

    def __reduce__(self) -> tuple[object, ...]:
        return _attach, (reduction.DupFd(self._fd),)

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._fd

    def view(self, size: int) -> memoryview:
        """Return the first `size` bytes. All processes see the same bytes."""
        try:
            # Allocated now: missing memory is an error here, not a SIGBUS during a write.
            os.posix_fallocate(self._fd, 0, size)
            mapped = mmap.mmap(self._fd, size)
        except OSError as error:
            raise no_memory(size, error) from error
        self._mapped.append(mapped)
        return memoryview(mapped)

    def close(self) -> None:
        """Close the descriptor. Mapped memory is released with its last view."""
        self._mapped.clear()
        os.close(self._fd)


def _attach(descriptor: Any) -> SharedMemory:
    return SharedMemory(descriptor.detach())


def no_memory(size: int, error: OSError) -> SharedMemoryError:
    """Make the error for shared memory that the system cannot provide."""
    return SharedMemoryError(
        f"{size:,} bytes of shared memory cannot be allocated",
        f"the system says: {error.strerror}",
        "fewer or smaller messages at once, more memory, or a higher limit (ulimit -n)",
    )
