"""Lists of the algorithms, networks and environments to choose from. Loads no torch."""

import importlib.metadata
from dataclasses import dataclass

import gymnasium as gym

from muster.errors import OptionError
from muster.nets import registry
from muster.recipes.algorithms import ALGORITHMS, ENTRY_POINTS, configuration_of, registered

_LEARNS_FROM = {
    "in_step": "rollouts, in step",
    "replay": "replay",
    "stream": "unrolls of older weights",
    "gradients": "gradients of workers",
}
_ACTIONS = {
    "Discrete": gym.spaces.Discrete(2),
    "MultiDiscrete": gym.spaces.MultiDiscrete([2, 2]),
    "Box": gym.spaces.Box(-1, 1, (1,)),
}
_NETWORKS = {
    "gru": ("any", "layers of --hidden, the last one a GRU"),
    "impala_cnn": ("images", "Espeholt et al. 2018: 15 convolutions, residual"),
    "lstm": ("any", "layers of --hidden, the last one an LSTM"),
    "mlp": ("any", "two layers of 64, whatever --hidden says"),
    "nature_cnn": ("images", "Mnih et al. 2015: three convolutions"),
    "resnet20": ("images", "He et al. 2015: 6n + 2 layers: resnet8, resnet20, ..."),
}


@dataclass(frozen=True)
class AlgorithmEntry:
    """An algorithm that `muster train` knows by name."""

    name: str
    learns_from: str
    """Replay, rollouts, unrolls or gradients."""
    actions: tuple[str, ...]
    """Kinds of action spaces that it supports."""


@dataclass(frozen=True)
class ModelEntry:
    """A network that `--model` knows by name."""

    name: str
    reads: str
    """Kind of observations that it is made for."""
    what: str


@dataclass(frozen=True)
class EnvEntry:
    """An environment that `muster train` knows by id."""

    env_id: str
    backends: tuple[str, ...]
    """Gymnasium, EnvPool or both."""


def algorithms() -> list[AlgorithmEntry]:
    """Return all algorithms: built-in, from installed packages, and registered."""
    of_packages = {entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    names = [*ALGORITHMS, *sorted((of_packages | registered()) - ALGORITHMS.keys())]
    return [_algorithm(name) for name in names]


def models() -> list[ModelEntry]:
    """Return all named networks."""
    own = [ModelEntry(name, "its own", "registered here") for name in registry.own_names()]
    return [ModelEntry(name, *about) for name, about in _NETWORKS.items()] + own


def envs(word: str = "") -> list[EnvEntry]:
    """Return the environments whose id contains a word, ignoring case.

    A package that registers its environments on import is not listed before it is imported.
    """
    from muster.envs.envpool_ids import ids_of_envpool

    by_backend = {"gymnasium": set(gym.registry), "envpool": set(ids_of_envpool())}
    found = {each for ids in by_backend.values() for each in ids if word.lower() in each.lower()}
    return [
        EnvEntry(each, tuple(name for name, ids in by_backend.items() if each in ids))
        for each in sorted(found, key=str.lower)
    ]


def _algorithm(name: str) -> AlgorithmEntry:
    config = configuration_of(name)
    actions = []
    for kind, space in _ACTIONS.items():
        try:
            config.check_actions(space)  # type: ignore[attr-defined]
            actions.append(kind)
        except OptionError:
            continue
    program: str = config.PROGRAM  # type: ignore[attr-defined]
    return AlgorithmEntry(name, _LEARNS_FROM[program], tuple(actions))
