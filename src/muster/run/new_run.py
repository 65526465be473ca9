"""Where a new run begins: an empty directory, given by the user or named after the run.

    runs/<env>/<algo>/<date-time>-<seed>[-<n>]/

A directory that holds anything but an empty start belongs to another run, and is not written to.
"""

import os
import shlex
import time
from pathlib import Path

from muster.run.claim import LOCK, WRITER, in_use, living_writer
from muster.run.errors import RunDirectoryError
from muster.run.names import check_inside, checked_path, safe_name

CHECKPOINTS = "checkpoints"
FOLDERS = ("logs", "tb", CHECKPOINTS)
"""Folders of a run; while they are empty, so is the run."""


def make_default(root: Path, env_id: str, algo: str, seed: int) -> Path:
    """Make a new directory under `root`, named after the run and the time."""
    parent = root / safe_name(env_id) / safe_name(algo)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        check_inside(parent, root)
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_name(str(seed))}"
        number = 1
        while True:
            path = parent / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(mode=0o700)  # private; its owner may grant access later
                return path
            except FileExistsError:  # another run started in the same second
                number += 1
    except OSError as error:
        raise not_made(parent, error) from error


def check_new(path: str | Path) -> Path:
    """Return the absolute path if a new run can begin there; raise otherwise. Creates nothing.

    Raises:
        RunDirectoryError: The directory is not empty, or is a link.
        RunLockedError: Another process is writing there.
    """
    path = checked_path(path)
    if path.is_symlink():
        raise RunDirectoryError(
            f"{path} is a symbolic link",
            "a run writes only inside its directory",
            f"--run-dir {shlex.quote(str(path.resolve()))}, if that is what you want",
        )
    if path.is_dir() and content_of(path):
        # Only read the claim: acquiring it to find out would exclude others for that moment.
        writer = living_writer(path)
        raise taken(path) if writer is None else in_use(path, writer)
    return path


def make_given(path: Path) -> None:
    """Make the directory that the user gave; raise RunDirectoryError if it is not empty."""
    check_new(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)  # another run may begin at the same moment
    except OSError as error:
        raise not_made(path, error) from error


def not_made(path: Path, error: OSError) -> RunDirectoryError:
    """Return the error for a file or directory that could not be created."""
    return RunDirectoryError(
        f"{path} could not be created: {error.strerror}",
        "a file is in the way, or the parent directory is not writable",
        "--run-dir with another path",
    )


def taken(path: Path) -> RunDirectoryError:
    """Return the error for a directory that is not empty."""
    quoted = shlex.quote(str(path))
    return RunDirectoryError(
        f"{path} is not empty",
        "a new run does not write into a directory that has files",
        f"muster resume {quoted}, or another --run-dir",
    )


def content_of(path: Path) -> list[str]:
    """Return the entries of a directory, without claims and leftovers of a run killed at start."""
    left = (LOCK, WRITER, ".env.json.partial")
    # A claim also writes `.writer.json.<hex>` briefly, to read the clock or to move a record.
    names = [
        name for name in os.listdir(path) if name not in left and not name.startswith(f"{WRITER}.")
    ]
    folders = [name for name in FOLDERS if (path / name).is_dir()]
    empty = [name for name in folders if not any((path / name).iterdir())]
    return [name for name in names if name not in empty]
