"""`muster algos`: lists the algorithms."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.cli.arguments import parse
from muster.columns import lines


@dataclass(frozen=True)
class AlgosOptions:
    """The algorithms of `muster train`, what they learn from, and their actions."""


def main(argv: Sequence[str]) -> int:
    """Print a line for each algorithm."""
    parse(AlgosOptions, argv, "muster algos")
    from muster.recipes.catalog import algorithms

    rows = [(each.name, each.learns_from, ", ".join(each.actions)) for each in algorithms()]
    print(*lines([("algorithm", "learns from", "actions"), *rows]), sep="\n")
    print("\nOptions of one: muster train ppo CartPole-v1 --help. Your own: module:name")
    return 0
