"""The output of nodes: the parent shows it with the node's name on each line, and logs it."""

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
"""A longer line is shown in pieces."""


class NodeLog:
    """One of a node's two streams, read from its pipe.

    Args:
        place: The place of the node.
        fd: Descriptor of the pipe; this object closes it.
        is_error: Whether this is the node's standard error.
        directory: Directory of the log; None for no log.
    """

    def __init__(self, place: Place, fd: int, is_error: bool, directory: Path | None) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._prefix = f"[{place.name}] "
        self._is_error = is_error
        self._line = b""
        self._file: BinaryIO | None = None
        if directory is not None:
            # Both streams of every incarnation write here: O_APPEND keeps each write whole.
            with contextlib.suppress(OSError):  # the output is still shown
                self._file = _opened(log_of(place, directory))

    def read(self) -> bool:
        """Show what has arrived; False if there is nothing to read, now or ever."""
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
        """Show the rest, and close."""
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
            with contextlib.suppress(OSError):  # a full disk must not end the run
                self._file.write(b"".join(line + b"\n" for line in lines))
        stream = sys.stderr if self._is_error else sys.stdout
        text = "".join(f"{self._prefix}{line.decode(errors='replace')}\n" for line in lines)
        # Neither must a closed terminal, or a pipe without a reader.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.write(text)
            stream.flush()


def log_of(place: Place, directory: Path) -> Path:
    """Return the log file of a node, for its output and for messages about it."""
    return directory / f"node.{place.node_id}.log"


def _opened(file: Path) -> BinaryIO:
    """Open a log for appending; not a named pipe, which would wait for a reader."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(file, flags, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    return open(fd, "ab", buffering=0)


def append(file: Path, text: str) -> bool:
    """Append to a log, on separate lines; False if that is not possible."""
    try:
        with _opened(file) as log:
            log.write(text.rstrip("\n").encode(errors="replace") + b"\n")
    except OSError:
        return False
    return True


def say(line: str) -> None:
    """Write a line to standard error, over a progress bar if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or missing
        erased = "\r\x1b[K" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{erased}muster: {line}\n")
        sys.stderr.flush()
