"""Command-line options from a dataclass: tyro reads them, and a typo gets its nearest match."""

import difflib
from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar

import tyro

from muster.errors import OptionError

T = TypeVar("T")


def parse(cls: type[T], argv: Sequence[str], prog: str, default: T | None = None) -> T:
    """Return an object of `cls` from `argv`. A bad value ends the process with code 2.

    Raises:
        OptionError: There is no such option; the message names the nearest one.
    """
    known = {f"--{field.name.replace('_', '-')}" for field in fields(cls)}  # type: ignore[arg-type]
    known |= {f"--no-{name[2:]}" for name in known} | {"--help"}
    for argument in argv:
        option = argument.split("=")[0].replace("_", "-")
        if option.startswith("--") and option not in known:
            near = difflib.get_close_matches(option, known, n=1, cutoff=0.5)
            raise OptionError(
                f"there is no option {option}",
                f"the nearest is {near[0]}" if near else "none is near",
                f"{prog} ... {near[0]}" if near else f"{prog} --help",
            )
    parsed: T = tyro.cli(cls, args=list(argv), prog=prog, default=default)  # type: ignore[assignment]
    return parsed
