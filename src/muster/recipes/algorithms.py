"""The algorithms by name. Knows where they are, and loads one when it is asked for."""

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from muster.errors import OptionError
from muster.spelling import nearest


@dataclass(frozen=True)
class Algorithm:
    """Where the parts of an algorithm are, each as module:name."""

    config: str
    """How it learns. Does not load torch."""
    agent: str
    """What acts and learns: made of (config, observation space, action space, seed, model)."""
    recipe: str
    """The training program: a function of (job, run directory, stop request)."""
    nodes: str
    """A module that its nodes begin with."""


ALGORITHMS = {
    "a2c": Algorithm(
        "muster.algos.a2c_config:A2CConfig",
        "muster.algos.a2c:A2C",
        "muster.recipes.in_step:train_in_step",
        "muster.recipes.warm_in_step",
    ),
    "dqn": Algorithm(
        "muster.algos.dqn_config:DQNConfig",
        "muster.algos.dqn:DQN",
        "muster.recipes.replay:train_by_replay",
        "muster.recipes.replay",
    ),
    "ppo": Algorithm(
        "muster.algos.ppo_config:PPOConfig",
        "muster.algos.ppo:PPO",
        "muster.recipes.in_step:train_in_step",
        "muster.recipes.warm_in_step",
    ),
    "pqn": Algorithm(
        "muster.algos.pqn_config:PQNConfig",
        "muster.algos.pqn:PQN",
        "muster.recipes.in_step:train_in_step",
        "muster.recipes.warm_in_step",
    ),
    "sac": Algorithm(
        "muster.algos.sac_config:SACConfig",
        "muster.algos.sac:SAC",
        "muster.recipes.replay:train_by_replay",
        "muster.recipes.replay",
    ),
}


def check_algorithm(algo: str) -> None:
    """Refuse a name that is not known."""
    if algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)


def configuration_of(algo: str) -> type:
    """Return the configuration class of an algorithm, or refuse its name."""
    config: type = load(algo, "config")
    return config


def load(algo: str, part: str) -> Any:
    """Return a part of an algorithm, or refuse its name."""
    check_algorithm(algo)
    module, _, name = getattr(ALGORITHMS[algo], part).partition(":")
    return getattr(importlib.import_module(module), name)


def make_agent(algo: str, cfg: Any, spaces: tuple[Any, Any], seed: int) -> Any:
    """Make what acts and learns, for these spaces of observations and actions."""
    return load(algo, "agent")(cfg, *spaces, seed)


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
