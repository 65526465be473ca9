"""Action masks: which actions are legal now.

    info["action_mask"]  ──> InfoMask ──> observation["action_mask"] ──> rollouts, replay, networks
    Dict observations with the key "action_mask" ────────^

A mask has one number for each choice, 0 where it is illegal: n for Discrete(n); for MultiDiscrete
the choices of the first number, then those of the second, and so on. As part of the observation it
goes wherever the observation goes. Networks do not read it as a feature, but exclude the values of
illegal actions.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.envs.errors import EnvError, RefusedValue
from muster.framework.signals import is_signal_exit

ACTION_MASK = "action_mask"
"""The key of the mask, in `info` and in a Dict observation."""
OBSERVATION = "obs"
"""The key of an observation that was not a Dict before a mask was added."""

Array = NDArray[Any]


def choices_of(space: gym.Space[Any]) -> list[int]:
    """Return the number of choices of each component of an action; empty if not discrete."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.flatten()]
    return []


def is_masked(obs_space: gym.Space[Any]) -> bool:
    """Whether observations include a mask of legal actions."""
    return isinstance(obs_space, gym.spaces.Dict) and ACTION_MASK in obs_space.spaces


def parts_to_read(space: gym.spaces.Dict) -> dict[str, gym.Space[Any]]:
    """Return the parts of a Dict observation that are features: all except the mask."""
    return {name: part for name, part in space.spaces.items() if name != ACTION_MASK}


class InfoMask(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `info["action_mask"]` to the observation.

    Args:
        env: An environment whose reset and step return such an info.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        mask = gym.spaces.Box(0, 1, (sum(choices_of(env.action_space)),), np.int8)
        space = env.observation_space
        self._is_dict = isinstance(space, gym.spaces.Dict)
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else {OBSERVATION: space}
        self.observation_space = gym.spaces.Dict({**parts, ACTION_MASK: mask})

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**options)
        return self.with_mask(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Apply an action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.with_mask(obs, info), reward, terminated, truncated, info

    def with_mask(self, obs: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return an observation with the mask from its info."""
        if ACTION_MASK not in info:
            raise KeyError(f"info has no {ACTION_MASK!r}, which it had at the first reset")
        parts = obs if self._is_dict else {OBSERVATION: obs}
        return {**parts, ACTION_MASK: flat_mask(info[ACTION_MASK])}


def flat_mask(mask: Any) -> NDArray[np.int8]:
    """Return a mask as int8 [choices]; for MultiDiscrete it may be a tuple of arrays."""
    parts = mask if isinstance(mask, tuple | list) else [mask]
    return np.concatenate([np.asarray(part).reshape(-1) for part in parts]).astype(np.int8)


class FirstReset:
    """The first reset of an environment, done early: only its `info` tells whether it has masks.

    Args:
        env: Reset if its actions could have masks.
        seed: The seed of its first episode.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self._seed = seed
        self._made: tuple[Any, dict[str, Any]] | None = None
        self._failed: BaseException | None = None
        if not choices_of(env.action_space) or is_masked(env.observation_space):
            return
        try:
            self._made = env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            if is_signal_exit(error):
                raise
            self._failed = error  # raised when the reset is requested

    @property
    def has_mask(self) -> bool:
        """Whether `info` contains a mask of legal actions."""
        try:
            _, info = self._made or (None, None)
        except (TypeError, ValueError):
            return False
        return isinstance(info, Mapping) and ACTION_MASK in info

    def take(self, env: gym.Env[Any, Any], seed: int) -> Any:
        """Return the result of reset(seed=seed): the early one, if it has the same seed."""
        made, failed = self._made, self._failed
        self._made = self._failed = None
        if seed != self._seed or (made is None and failed is None):
            return env.reset(seed=seed)
        if failed is not None:
            raise failed
        if made is not None and isinstance(env, InfoMask):
            return env.with_mask(*made), made[1]
        return made


def mask_check(
    env_id: str, obs_space: gym.Space[Any], action_space: gym.Space[Any]
) -> "MaskCheck | None":
    """Return the checker of an environment's masks, or None if it has none.

    Args:
        env_id: The name in messages.
        obs_space: The space of one observation.
        action_space: The space of one action.

    Raises:
        EnvError: The size of the mask does not match the actions.
    """
    if not isinstance(obs_space, gym.spaces.Dict) or not is_masked(obs_space):
        return None
    choices = choices_of(action_space)
    shape = obs_space.spaces[ACTION_MASK].shape
    if not choices:
        raise EnvError(
            f"{env_id!r} has an action_mask, and its actions are {action_space}",
            "only Discrete and MultiDiscrete actions can be masked",
            "use another name for this part of the observation",
            field=ACTION_MASK,
        )
    if shape != (sum(choices),):
        raise EnvError(
            f"the action_mask of {env_id!r} has shape {shape}",
            f"for {action_space} it has one number for each choice: {(sum(choices),)}",
            f"gymnasium.spaces.MultiBinary({sum(choices)})",
            field=ACTION_MASK,
        )
    return MaskCheck(choices)


class MaskCheck:
    """Checks that every row has a legal action.

    Args:
        choices: The number of choices of each component of an action.
    """

    def __init__(self, choices: list[int]) -> None:
        self._starts = np.cumsum([0, *choices[:-1]])

    def check(self, obs: Mapping[str, Array], over: NDArray[np.bool_] | None = None) -> None:
        """Raise RefusedValue if a row has no legal action.

        Args:
            obs: Rows of observations.
            over: Rows that need no legal action, because their episode is over.
        """
        legal = np.add.reduceat(obs[ACTION_MASK] != 0, self._starts, axis=1, dtype=np.int64)
        none = (legal == 0).any(axis=1)
        if over is not None:
            none &= ~over
        if none.any():
            raise RefusedValue(
                int(none.argmax()),
                ACTION_MASK,
                "leaves no legal action",
                "a running episode needs one; an episode that is over is terminated",
                "return terminated=True where no action is legal",
            )


def legal_actions(actions: Array, obs: Any, space: gym.Space[Any]) -> Array:
    """Return actions [N, ...] with each illegal choice replaced by the next legal one."""
    if not isinstance(obs, Mapping) or ACTION_MASK not in obs:
        return actions
    starts = np.asarray(space.start, np.int64).reshape(-1)  # type: ignore[attr-defined]
    numbers = actions.reshape(len(actions), -1) - starts
    legal = numbers.copy()
    first = 0
    for j, count in enumerate(choices_of(space)):
        mask = obs[ACTION_MASK][:, first : first + count] != 0
        order = (numbers[:, j : j + 1] + np.arange(count)) % count  # itself, then those after it
        nearest = np.take_along_axis(mask, order, axis=1).argmax(axis=1)
        legal[:, j] = np.take_along_axis(order, nearest[:, None], axis=1)[:, 0]
        first += count
    return (legal + starts).reshape(actions.shape).astype(actions.dtype)
