"""Recorded episodes as every format gives them: steps, spaces, and the environment's name.

a folder that `muster eval --save-episodes` wrote -> Recording <- a data set of Minari (HDF5)
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from muster.data.episodes import is_recorded, read_episodes
from muster.envs.space_json import space_from_json
from muster.fitting.errors import DataError
from muster.recipes.saved import OF_ENV
from muster.run import CheckpointError


@dataclass(frozen=True)
class Recording:
    """Episodes as they were read, unchecked: observations of each step, and the actions."""

    path: Path
    episodes: list[tuple[Any, NDArray[Any]]] = field(repr=False)
    """Of each episode: observations [T, ...] or a dict of such arrays, and actions [T, ...]."""
    obs_space: gym.Space[Any]
    action_space: gym.Space[Any]
    env: str | None = None
    """Id of the environment, if it is known."""
    of_env: dict[str, Any] = field(default_factory=dict)
    """Backend, wrappers and arguments of the environment, if they were recorded."""


def find_recording(path: Path) -> Recording | None:
    """Read the episodes in a folder; None if it holds something else.

    Raises:
        DataError: They are damaged, or cannot be read.
    """
    from muster.fitting import minari_files

    if minari_files.is_minari(path):
        return minari_files.read_minari(path)
    if not is_recorded(path):
        return None
    try:
        meta, episodes = read_episodes(path)
        names = ("obs_space", "action_space")
        seen, done = (space_from_json(meta.get(name)) for name in names)
    except (CheckpointError, ValueError) as error:
        what, why = error.args[:2] if isinstance(error, CheckpointError) else (str(path), error)
        raise DataError(
            f"the episodes in {path} cannot be read: {what}",
            str(why),
            "record them again: muster eval RUN --save-episodes DIR",
        ) from error
    steps = [(_without_last(each.obs), each.action) for each in episodes]
    env = meta.get("env")
    of_env = {name: meta[name] for name in OF_ENV if name in meta}
    return Recording(path, steps, seen, done, env if isinstance(env, str) else None, of_env)


def _without_last(obs: Any) -> Any:
    """Return the observations that an action followed."""
    if isinstance(obs, dict):
        return {key: part[:-1] for key, part in obs.items()}
    return obs[:-1]
