"""Rewrites errors about `lr=0.1`, in Python's syntax, for the command line: `--lr 0.1`."""

import re
from collections.abc import Iterable

from muster.errors import OptionError


def as_typed(error: OptionError, prog: str, names: Iterable[str]) -> OptionError:
    """Return an error whose options are written the way they are typed.

    Args:
        error: The exception raised.
        prog: The command up to its options.
        names: The fields that are options.
    """
    setting = re.compile(
        rf"\b({'|'.join(sorted(names, key=len, reverse=True))})="
        r"(\([^)]*\)|'[^']*'|\"[^\"]*\"|[^\s,;]+)"
    )
    what, why, fix = error.args
    typed = setting.sub(_option, fix)
    if typed.startswith("--"):
        typed = f"{prog} {typed}"
    return OptionError(setting.sub(_option, what), setting.sub(_option, why), typed)


def _option(found: re.Match[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2]
    if value in ("True", "False"):
        return f"--{name}" if value == "True" else f"--no-{name}"
    words = re.sub(r"[(),'\"]", "", value)
    return f"--{name} {words}".rstrip()
