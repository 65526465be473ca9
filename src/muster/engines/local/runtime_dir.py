"""The directory of a run's sockets: private, and gone when the run is, however it went."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from muster.processes import start_of

_PREFIX = "muster-"


@contextlib.contextmanager
def runtime_directory(root: Path | None = None) -> Iterator[Path]:
    """Make a directory that only this user can enter; remove it at the end.

    Its name says which process made it. Those of processes that are proven dead, and that could
    not clean up, are removed first.

    Args:
        root: Where to make it; None for where such directories usually are.
    """
    root = root or Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    if not os.access(root, os.W_OK):
        root = Path(tempfile.gettempdir())
    _sweep(root)
    owner = f"{_PREFIX}{os.getpid()}-{start_of(os.getpid())}-"
    directory = Path(tempfile.mkdtemp(prefix=owner, dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep(root: Path) -> None:
    for directory in root.glob(f"{_PREFIX}*-*-*"):
        _, pid, start, *_ = directory.name.split("-")
        with contextlib.suppress(OSError):
            mine = directory.lstat().st_uid == os.getuid() and not directory.is_symlink()
            if mine and pid.isdigit() and start.isdigit() and start_of(int(pid)) != int(start):
                shutil.rmtree(directory, ignore_errors=True)
