"""How messages show paths and programs: as a user would type them in the current folder."""

import os
import shutil
import sys
from pathlib import Path


def shown(path: str | Path) -> str:
    """Return a path relative to the current folder, if it is inside; otherwise the whole path."""
    try:
        return str(Path(path).relative_to(os.getcwd()))
    except (ValueError, OSError):  # outside; or the current folder was deleted
        return str(path)


def program(name: str) -> str:
    """Return how to call a program of this Python's environment, such as `pip`.

    In an activated environment that is the name. Where the shell would find another program of this
    name, or none, it is the path: after `make train`, `.venv/bin/muster`.
    """
    ours = Path(sys.executable).parent / name
    found = shutil.which(name)
    if not ours.is_file() or (found is not None and os.path.samefile(found, ours)):
        return name
    return shown(ours)
