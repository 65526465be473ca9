"""The directory of a run's sockets: private, and removed when the run ends, however it ends."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from muster.errors import OptionError
from muster.processes import start_of

_PREFIX = "muster-"
_LONGEST_ROOT = 55
"""The path of a socket may have 107 characters: 52 of them are for the names below the root."""


@contextlib.contextmanager
def runtime_directory(root: Path | None = None) -> Iterator[Path]:
    """Make a directory that only this user can enter; remove it at the end.

    Its name contains the process that made it. Directories of processes that are proven dead, and
    that could not clean up, are removed first.

    Args:
        root: Where to make it; None for the usual place.

    Raises:
        OptionError: There is no suitable place.
    """
    root = _usual_root() if root is None else root
    _sweep(root)
    owner = f"{_PREFIX}{os.getpid()}-{start_of(os.getpid())}-"
    directory = Path(tempfile.mkdtemp(prefix=owner, dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _usual_root() -> Path:
    """Return the first place that is writable, and short enough for a socket in it."""
    named = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")
    for root in (Path(each).absolute() for each in named if each):
        if os.access(root, os.W_OK) and len(os.fsencode(root)) <= _LONGEST_ROOT:
            return root
    raise OptionError(
        f"the sockets of a run cannot be created in {tempfile.gettempdir()!r:.200}",
        f"it must be a writable folder with a path of at most {_LONGEST_ROOT} characters",
        "export TMPDIR=/tmp",
    )


def _sweep(root: Path) -> None:
    for directory in root.glob(f"{_PREFIX}*-*-*"):
        _, pid, start, *_ = directory.name.split("-")
        with contextlib.suppress(OSError):
            mine = directory.lstat().st_uid == os.getuid() and not directory.is_symlink()
            if mine and pid.isdigit() and start.isdigit() and start_of(int(pid)) != int(start):
                shutil.rmtree(directory, ignore_errors=True)
