"""The algorithms by name. Knows where they are, and loads one when it is asked for."""

import difflib
import importlib
from collections.abc import Collection

from muster.errors import OptionError

ALGORITHMS = {"dqn": ("muster.algos.dqn", "DQNConfig")}
"""Name of an algorithm: the module and the class of its configuration."""


def check_algorithm(algo: str) -> None:
    """Refuse a name that is not known."""
    if algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)


def configuration_of(algo: str) -> type:
    """Return the configuration class of an algorithm, or refuse its name."""
    check_algorithm(algo)
    module, name = ALGORITHMS[algo]
    config: type = getattr(importlib.import_module(module), name)
    return config


def unknown(kind: str, name: str, known: Collection[str]) -> OptionError:
    """Make the error for a name that is not known, with the nearest one that is."""
    near = difflib.get_close_matches(name, known, n=1)
    return OptionError(
        f"there is no {kind} {name!r}",
        f"the nearest is {near[0]!r}" if near else f"there are: {', '.join(sorted(known))}",
        near[0] if near else "muster train --help",
    )
