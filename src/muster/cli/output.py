"""What a command prints, where nobody may read it any more, or where there is no room for it.

A pipe whose reader has left (`| head -1`) and a terminal that was closed are no failures: the
command goes on without them, and ends with its own code. A device that is full is said.
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
    """What was to be printed could not be written."""

    run_failed = True


@contextlib.contextmanager
def forgiving_output() -> Iterator[None]:
    """Within this block standard output may lose its reader, and what is left to write at its end.

    Raises:
        OutputError: It is on a device that is full.
    """
    try:
        is_file = isinstance(sys.stdout.fileno(), int)
    except (AttributeError, OSError, ValueError):  # none, or one of a test's own
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
    """Standard output that takes no offence at a reader who has left."""

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
        """Write, if anybody is there."""
        try:
            return super().write(text)
        except OSError as error:
            self._forgive(error)
            return len(text)

    def flush(self) -> None:
        """Write what is left, if anybody is there."""
        try:
            super().flush()
        except OSError as error:
            self._forgive(error)

    def _forgive(self, error: OSError) -> None:
        """Have all that follows, and what is in the buffer, go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if error.errno not in _NOBODY:
            raise OutputError(
                "what was to be printed could not be written",
                f"standard output: {error.strerror}",
                "print to another place; a run that has ended is whole in its directory",
            ) from error


def can_be_written(path: Path) -> bool:
    """Whether a file can be written there now; not into a named pipe that nobody reads."""
    try:
        if not path.exists():
            return path.parent.is_dir() and os.access(path.parent, os.W_OK)
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
