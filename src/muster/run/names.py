"""Names of run directories, such that nothing is ever written outside of them.

Environment ids and algorithm names come from anywhere and are made safe (`safe_name`); a path from
the user is used as it is, or rejected (`checked_path`).
"""

import hashlib
import os
import re
from pathlib import Path

from muster.errors import OptionError
from muster.run.errors import RunDirectoryError

_HARMLESS = re.compile(r"[^A-Za-z0-9._+=-]+")
_LONGEST = 80
_LONGEST_PART = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def safe_name(text: str) -> str:
    """Turn any text into the name of a directory: `ALE/Pong-v5` becomes `ALE_Pong-v5`.

    Letters, digits and `._+=-` stay; any other character becomes `_`. A name never begins with a
    dot or a dash; a name that is too long is cut and ends with a hash of the whole.
    """
    name = _HARMLESS.sub("_", text).lstrip(".-")
    if not name.strip("_."):
        raise OptionError(
            f"{text!r} cannot be turned into the name of a directory",
            "it has only dots, dashes and special characters",
            "--run-dir runs/my-run",
        )
    if len(name) > _LONGEST:
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
        name = f"{name[: _LONGEST - 9]}-{digest}"
    return name


def checked_path(path: str | Path) -> Path:
    """Return the absolute form of a path from the user; raise OptionError if it is invalid."""
    text = os.fspath(path)
    name = os.path.basename(os.path.normpath(text)) if text else ""
    if not text:
        problem = "it is empty"
    elif _CONTROL.search(text):
        problem = "it holds a control character"
    elif any(len(os.fsencode(part)) > _LONGEST_PART for part in Path(text).parts):
        problem = f"a name in it is longer than {_LONGEST_PART} bytes"
    elif name.startswith("-"):
        problem = "its name begins with a dash, which commands take for an option"
    else:
        # Not resolved: a link above it is the user's choice.
        return Path(os.path.abspath(text))
    raise OptionError(f"{text!r:.120} cannot be a run directory", problem, "--run-dir runs/my-run")


def check_inside(path: Path, root: Path) -> None:
    """Raise RunDirectoryError if links lead out of `root` on the way to `path`."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise RunDirectoryError(
            f"{path} is not inside {root}",
            f"a symbolic link on the path leads to {path.resolve()}",
            "--run-dir with that path, if that is what you want",
        )
