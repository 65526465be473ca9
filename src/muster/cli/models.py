"""`muster models`: lists the networks that have a name."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.cli.arguments import parse
from muster.columns import lines


@dataclass(frozen=True)
class ModelsOptions:
    """The networks that --model knows by name."""


def main(argv: Sequence[str]) -> int:
    """Print a line for each network."""
    parse(ModelsOptions, argv, "muster models")
    from muster.recipes.catalog import models

    rows = [(each.name, each.reads, each.what) for each in models()]
    print(*lines([("model", "reads", "what it is"), *rows]), sep="\n")
    print("\nWithout --model: what observations need, then --hidden. Your own: module:Class")
    return 0
