"""`muster envs [WORD]`: lists the environments that are known here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from muster.cli.arguments import parse
from muster.columns import lines
from muster.errors import OptionError


@dataclass(frozen=True)
class EnvsOptions:
    """The environments that are known here, and what runs them.

    Environments of another package need its name: package:Id-v0.
    """

    word: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="[WORD]")]] = ""
    """Only ids that contain this word."""


def main(argv: Sequence[str]) -> int:
    """Print a line for each environment."""
    options = parse(EnvsOptions, argv, "muster envs")
    from muster.envs.make import nearest_id
    from muster.recipes.catalog import envs

    found = envs(options.word)
    if not found:
        near = nearest_id(options.word, [each.env_id for each in envs()])
        raise OptionError(
            f"no environment has {options.word!r:.80} in its id",
            f"the nearest is {near!r}" if near else "no installed package has registered one",
            f"muster envs {near}" if near else "muster envs, for all of them",
        )
    rows = [("both" if len(e.backends) > 1 else e.backends[0], e.env_id) for e in found]
    print(*lines([("run by", "id"), *rows]), sep="\n")
    return 0
