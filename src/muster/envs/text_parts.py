"""`WithoutText`: an environment whose observations have parts of text, without these parts.

MiniGrid describes the goal of an episode in words, beside an image. Networks read numbers, so the
words are left out, and a warning names them.
"""

import functools
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from muster.errors import MusterWarning


def without_text(env: gym.Env[Any, Any], env_id: str) -> gym.Env[Any, Any]:
    """Return an environment whose Dict observations have no text; the same one if they have none.

    Args:
        env: The environment.
        env_id: The name in the warning.
    """
    space = env.observation_space
    if not isinstance(space, gym.spaces.Dict):
        return env
    words = [name for name, part in space.spaces.items() if _is_text(part)]
    if not words or len(words) == len(space.spaces):  # nothing but text: refused later
        return env
    _warn(env_id, ", ".join(repr(name) for name in words))
    return WithoutText(env, tuple(words))


class WithoutText(gym.ObservationWrapper[Any, Any, Any]):
    """Leaves parts out of Dict observations.

    Args:
        env: The environment.
        words: The names of these parts.
    """

    def __init__(self, env: gym.Env[Any, Any], words: tuple[str, ...]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Dict)
        self._kept = tuple(name for name in space.spaces if name not in words)
        self.observation_space = gym.spaces.Dict({k: space.spaces[k] for k in self._kept})

    def observation(self, observation: Any) -> Any:
        """Return the other parts of an observation."""
        return {name: observation[name] for name in self._kept}


def _is_text(space: gym.Space[Any]) -> bool:
    """Whether values of a space are strings: a Text, or a space of a package's own."""
    return space.dtype is not None and np.dtype(space.dtype).kind in "US"


@functools.lru_cache(maxsize=256)
def _warn(env_id: str, words: str) -> None:
    """Warn once in this process: every evaluation makes environments anew."""
    warnings.warn(
        f"observations of {env_id!r} have text in {words}, which no network reads: left out",
        MusterWarning,
        stacklevel=4,
    )
