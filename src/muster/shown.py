"""How messages show paths and programs: as a user would type them in the current folder."""

import os
import shutil
import sys
from pathlib import Path


def shown(path: str | Path) -> str:
    """Return a path from the current folder, if it is in there; otherwise the whole path."""
    try:
        return str(Path(path).relative_to(os.getcwd()))
    except (ValueError, OSError):  # elsewhere; the current folder is gone
        return str(path)


def program(name: str) -> str:
    """Return what calls a program of this Python's environment, such as `pip`.

    That is its name in an activated environment, and its path where the shell would find another
    program under this name, or none: after `make train` that is `.venv/bin/muster`.
    """
    ours = Path(sys.executable).parent / name
    found = shutil.which(name)
    if not ours.is_file() or (found is not None and os.path.samefile(found, ours)):
        return name
    return shown(ours)
