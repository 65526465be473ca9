"""The token of a Ray cluster: whether it exists and is right, and whether it is secret."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.errors import MusterWarning, OptionError

_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_GROUP_OR_OTHERS_READ = 0o044
_GROUP_OR_OTHERS_PASS = 0o011
_EXPORT = "export RAY_AUTH_TOKEN=..., as ray get-auth-token prints it on the cluster's head"
_warned: set[Path] = set()


def check_token(address: str, found: Mapping[str, Any]) -> None:
    """Raise OptionError if this process does not have the cluster's token.

    Args:
        address: The cluster's address.
        found: The answer of `ask.py`.

    Raises:
        OptionError: There is no token, it is wrong, or Ray would not send it.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if found["token"] == "none" and (found["auth"] or mode == "token"):
        whose = f"the Ray cluster at {address}" if found["auth"] else "RAY_AUTH_MODE"
        raise OptionError(
            f"{whose} requires a token, and none is set",
            "RAY_AUTH_TOKEN and RAY_AUTH_TOKEN_PATH are not set, and ~/.ray/auth_token is missing",
            _EXPORT,
        )
    if found["token"] == "wrong":
        source = next(filter(os.environ.get, _VARIABLES), "the file ~/.ray/auth_token")
        raise OptionError(
            f"the Ray cluster at {address} refuses our token",
            f"the token from {source} is not the cluster's",
            _EXPORT,
        )
    if found["auth"] and mode not in ("", "token"):
        raise OptionError(
            f"the Ray cluster at {address} requires a token; RAY_AUTH_MODE={mode} sends none",
            "Ray sends its token only in the mode token",
            "export RAY_AUTH_MODE=token",
        )


def warn_if_readable() -> None:
    """Warn, once, if the token is in a file that other users of this machine can read."""
    path = _file()
    if path is None or path in _warned or not _is_open(path):
        return
    _warned.add(path)
    warnings.warn(
        f"other users of this machine can read the Ray token in {path}, and with it run programs "
        f"on the cluster as you: chmod 600 {path}",
        MusterWarning,
        stacklevel=6,
    )


def _file() -> Path | None:
    """Return the file from which Ray reads its token; None if a variable contains the token."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return None
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"


def _is_open(path: Path) -> bool:
    """Whether other users may read a file; a private directory above it prevents that."""
    try:
        real = path.resolve(strict=True)
        readable = bool(real.stat().st_mode & _GROUP_OR_OTHERS_READ)
        return readable and all(
            above.stat().st_mode & _GROUP_OR_OTHERS_PASS for above in real.parents
        )
    except OSError:
        return False
