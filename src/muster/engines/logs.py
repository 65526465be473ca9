"""What nodes print: shown by the parent with its name before each line, and kept in files."""

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from muster.framework.node import Place

_CHUNK = 64 << 10
_LONGEST_LINE = 64 << 10
"""A line that is longer is shown in pieces."""


class NodeLog:
    """One of a node's two streams, read from its pipe.

    Args:
        place: Whose it is.
        fd: Where to read; it becomes this object's own.
        is_error: Whether it is the node's standard error.
        directory: Where to keep it; None for nowhere.
    """

    def __init__(self, place: Place, fd: int, is_error: bool, directory: Path | None) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._prefix = f"[{place.name}] "
        self._is_error = is_error
        self._line = b""
        self._file: BinaryIO | None = None
        if directory is not None:
            # Both streams of every incarnation: O_APPEND keeps each write whole.
            with contextlib.suppress(OSError):  # what is shown is not lost
                self._file = _opened(log_of(place, directory))

    def read(self) -> bool:
        """Show what came; False when nothing is there, now or for good."""
        try:
            data = os.read(self.fd, _CHUNK)
        except OSError:
            return False
        *lines, self._line = (self._line + data).split(b"\n")
        self._show(lines)
        if len(self._line) > _LONGEST_LINE:
            self._show([self._line])
            self._line = b""
        return bool(data)

    def close(self) -> None:
        """Show what is left, and close."""
        while self.read():
            pass
        if self._line:
            self._show([self._line])
        os.close(self.fd)
        if self._file is not None:
            self._file.close()

    def _show(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk is no reason to end a run
                self._file.write(b"".join(line + b"\n" for line in lines))
        stream = sys.stderr if self._is_error else sys.stdout
        text = "".join(f"{self._prefix}{line.decode(errors='replace')}\n" for line in lines)
        # Nor is a terminal that was closed, or a pipe that nobody reads any more.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.write(text)
            stream.flush()


def log_of(place: Place, directory: Path) -> Path:
    """Return the file that keeps what a node prints, and what is said about it."""
    return directory / f"node.{place.node_id}.log"


def _opened(file: Path) -> BinaryIO:
    """Open a log to add to it; not a named pipe, which would wait for somebody to read it."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(file, flags, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    return open(fd, "ab", buffering=0)


def append(file: Path, text: str) -> bool:
    """Add to a log, on lines of its own; False if that is not possible."""
    try:
        with _opened(file) as log:
            log.write(text.rstrip("\n").encode(errors="replace") + b"\n")
    except OSError:
        return False
    return True


def say(line: str) -> None:
    """Write a line to standard error, over a progress bar if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
        erased = "\r\x1b[K" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{erased}muster: {line}\n")
        sys.stderr.flush()
