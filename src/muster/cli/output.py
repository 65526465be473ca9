"""Output of a command whose reader may have gone, or whose device may be full.

A pipe whose reader has exited (`| head -1`) and a terminal that was closed are not failures: the
command continues without them, and ends with its own exit code. A full device is reported.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from muster.errors import MusterError

_NOBODY = (errno.EPIPE, errno.EIO)


class OutputError(MusterError, RuntimeError):
    """The output could not be written."""

    run_failed = True


@contextlib.contextmanager
def forgiving_output() -> Iterator[None]:
    """Within this block, and at its end, standard output may lose its reader.

    Raises:
        OutputError: The device is full.
    """
    try:
        is_file = isinstance(sys.stdout.fileno(), int)
    except (AttributeError, OSError, ValueError):  # no standard output, or a test's own
        is_file = False
    if not is_file or not isinstance(sys.stdout, io.TextIOWrapper):
        yield
        return
    before = sys.stdout
    sys.stdout = _Forgiving(before)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = before


class _Forgiving(io.TextIOWrapper):
    """Standard output that ignores a reader that has gone."""

    def __init__(self, inner: io.TextIOWrapper) -> None:
        raw = io.FileIO(inner.fileno(), "w", closefd=False)
        super().__init__(
            io.BufferedWriter(raw),
            encoding=inner.encoding,
            errors=inner.errors,
            line_buffering=True,
        )
        self._inner = inner
        inner.flush()

    def write(self, text: str) -> int:
        """Write, if there is still a reader."""
        try:
            return super().write(text)
        except OSError as error:
            self._forgive(error)
            return len(text)

    def flush(self) -> None:
        """Flush, if there is still a reader."""
        try:
            super().flush()
        except OSError as error:
            self._forgive(error)

    def _forgive(self, error: OSError) -> None:
        """Discard the buffer and all further output."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if error.errno not in _NOBODY:
            raise OutputError(
                "the output could not be written",
                f"standard output: {error.strerror}",
                "write to another place; the directory of a run that has ended is complete",
            ) from error


def can_be_written(path: Path) -> bool:
    """Whether a file can be written there now; False for a named pipe without a reader."""
    try:
        if not path.exists():
            return path.parent.is_dir() and os.access(path.parent, os.W_OK)
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
