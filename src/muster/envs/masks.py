"""Action masks: which of the actions are legal now.

    info["action_mask"]  ──> InfoMask ──> observation["action_mask"] ──> rollouts, replay, networks
    Dict observations with the key "action_mask" ────────^

A mask has one number for each choice, 0 where it is illegal: n for Discrete(n), for MultiDiscrete
the choices of the first number, then those of the second, and so on. As a part of the observation
it goes wherever that goes; networks do not read it, but leave out the values of illegal actions.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.envs.errors import EnvError, RefusedValue
from muster.framework.signals import SignalExit

ACTION_MASK = "action_mask"
"""The key, in `info` and in a Dict observation."""
OBSERVATION = "obs"
"""The key of an observation that was no Dict before a mask came to it."""

Array = NDArray[Any]


def choices_of(space: gym.Space[Any]) -> list[int]:
    """Return how many choices each number of an action has; none for what is not countable."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.flatten()]
    return []


def is_masked(obs_space: gym.Space[Any]) -> bool:
    """Whether observations say which actions are legal."""
    return isinstance(obs_space, gym.spaces.Dict) and ACTION_MASK in obs_space.spaces


def parts_to_read(space: gym.spaces.Dict) -> dict[str, gym.Space[Any]]:
    """Return the parts of a Dict observation that are features: all but the mask."""
    return {name: part for name, part in space.spaces.items() if name != ACTION_MASK}


class InfoMask(gym.Wrapper[Any, Any, Any, Any]):
    """Puts `info["action_mask"]` into the observation.

    Args:
        env: Its reset and step return such an info.
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
        """Do an action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.with_mask(obs, info), reward, terminated, truncated, info

    def with_mask(self, obs: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return an observation with the mask of its info."""
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
        env: Is reset if its actions could have masks.
        seed: Of its first episode.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self._seed = seed
        self._made: tuple[Any, dict[str, Any]] | None = None
        self._failed: BaseException | None = None
        if not choices_of(env.action_space) or is_masked(env.observation_space):
            return
        try:
            self._made = env.reset(seed=seed)
        except SignalExit:
            raise
        except (Exception, SystemExit) as error:
            self._failed = error  # is told when the reset is asked for

    @property
    def has_mask(self) -> bool:
        """Whether `info` says which actions are legal."""
        try:
            _, info = self._made or (None, None)
        except (TypeError, ValueError):
            return False
        return isinstance(info, Mapping) and ACTION_MASK in info

    def take(self, env: gym.Env[Any, Any], seed: int) -> Any:
        """Return what reset(seed=seed) returns: what is there already, if it is this seed's."""
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
    """Return what looks at the masks of an environment, or None if it has none.

    Args:
        env_id: What to call it.
        obs_space: Of one observation.
        action_space: Of one action.

    Raises:
        EnvError: The mask has another size than the actions.
    """
    if not isinstance(obs_space, gym.spaces.Dict) or not is_masked(obs_space):
        return None
    choices = choices_of(action_space)
    shape = obs_space.spaces[ACTION_MASK].shape
    if not choices:
        raise EnvError(
            f"{env_id!r} has an action_mask, and its actions are {action_space}",
            "only actions that can be counted can be left out",
            "another name for this part of the observation",
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
    """Looks whether every row has a legal action.

    Args:
        choices: Of each number of an action.
    """

    def __init__(self, choices: list[int]) -> None:
        self._starts = np.cumsum([0, *choices[:-1]])

    def check(self, obs: Mapping[str, Array], over: NDArray[np.bool_] | None = None) -> None:
        """Raise RefusedValue if a row has no legal action.

        Args:
            obs: Rows of observations.
            over: Which rows need none, because their episode is over.
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
                "an episode that goes on needs one; one that is over says terminated",
                "terminated=True where nothing can be done",
            )


def legal_actions(actions: Array, obs: Any, space: gym.Space[Any]) -> Array:
    """Return actions [N, ...] with the next legal choice in place of each illegal one."""
    if not isinstance(obs, Mapping) or ACTION_MASK not in obs:
        return actions
    starts = np.asarray(space.start, np.int64).reshape(-1)  # type: ignore[attr-defined]
    numbers = actions.reshape(len(actions), -1) - starts
    legal = numbers.copy()
    first = 0
    for j, count in enumerate(choices_of(space)):
        mask = obs[ACTION_MASK][:, first : first + count] != 0
        order = (numbers[:, j : j + 1] + np.arange(count)) % count  # itself, then what follows
        nearest = np.take_along_axis(mask, order, axis=1).argmax(axis=1)
        legal[:, j] = np.take_along_axis(order, nearest[:, None], axis=1)[:, 0]
        first += count
    return (legal + starts).reshape(actions.shape).astype(actions.dtype)
