"""Sleep until a word of shared memory changes, and wake the sleepers (the futex of Linux).

A word has one writer. A waiting process sleeps in the kernel on the value that it has seen; the
kernel compares the value again under its own lock, so no change is missed.
"""

import ctypes
import errno
import os
import platform

from muster.errors import MusterError

_SYS_FUTEX = {"x86_64": 202}.get(platform.machine())
"""x86_64 only: a team relies on stores becoming visible in order, which ARM does not guarantee."""
_WAIT, _WAKE = 0, 1  # not the private variants: processes share the word
_ALL = 2**31 - 1
_LOW_HALF = 0xFFFF_FFFF

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Word:
    """An int64 of shared memory; waiting compares only its low half.

    Args:
        memory: The shared memory.
        offset: Offset of the first byte, a multiple of 8.
    """

    def __init__(self, memory: memoryview, offset: int) -> None:
        self._kept = ctypes.c_int64.from_buffer(memory, offset)
        self._address = ctypes.c_void_p(ctypes.addressof(self._kept))

    def wake(self) -> None:
        """Wake all sleepers; call this after a change."""
        _futex(self._address, _WAKE, _ALL, None)

    def sleep(self, seen: int, seconds: float) -> None:
        """Sleep while the word has the value that was seen, but at most this many seconds."""
        whole = int(seconds)
        limit = _Timespec(whole, int((seconds - whole) * 1e9))
        _futex(self._address, _WAIT, seen & _LOW_HALF, ctypes.byref(limit))


def _futex(address: ctypes.c_void_p, operation: int, value: int, limit: object) -> None:
    if _SYS_FUTEX is None:
        raise MusterError(
            f"workers cannot share memory on {platform.machine()}",
            "they wait for each other with a system call that muster implements for x86_64 only",
            "--workers 0",
        )
    if _libc.syscall(_SYS_FUTEX, address, operation, ctypes.c_uint32(value), limit, None, 0) < 0:
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR):
            raise OSError(number, f"futex: {os.strerror(number)}")
