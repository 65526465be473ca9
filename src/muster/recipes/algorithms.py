"""The algorithms by name. Knows where they are, and loads one when it is asked for."""

import importlib
from collections.abc import Collection

from muster.errors import OptionError
from muster.spelling import nearest

ALGORITHMS = {"dqn": ("muster.algos.dqn_config", "DQNConfig")}
"""Name of an algorithm: the module and the class of its configuration. Neither loads torch."""


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


def unknown(kind: str, name: str, known: Collection[str], fix: str | None = None) -> OptionError:
    """Make the error for a name that is not known, with the nearest one that is.

    Args:
        kind: What it should name.
        name: What it says.
        known: The names that there are.
        fix: What to try, with `{}` where the right name goes; the name alone if it is not given.
    """
    near = nearest(name, known)
    return OptionError(
        f"there is no {kind} {name!r:.120}",
        f"the nearest is {near!r}" if near else f"there are: {', '.join(sorted(known))}",
        "muster train --help" if near is None else (fix or "{}").format(near),
    )
