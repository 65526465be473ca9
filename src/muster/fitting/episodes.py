"""`EpisodeData`: recorded episodes as samples (what was seen) and labels (what was done).

Recording -> observations and actions as muster's policies have them, checked step by step
          -> whole episodes for training and for testing -> EpisodeData
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.envs.actions import action_rows
from muster.envs.errors import EnvError, RefusedValue
from muster.envs.masks import ACTION_MASK, choices_of, is_masked, mask_check
from muster.envs.observations import observation_rows
from muster.envs.space_json import space_to_json
from muster.errors import MusterError
from muster.fitting.data import sha256_of
from muster.fitting.errors import DataError
from muster.fitting.parts import split_episodes
from muster.fitting.recordings import Recording

Array = NDArray[Any]


@dataclass(frozen=True)
class EpisodeData:
    """The steps of recorded episodes, some for training and some for testing."""

    name: str
    """Its name in a run's directory and files."""
    x_train: Any = field(repr=False)
    """Observations [N, ...], or a dict of such arrays."""
    y_train: Array = field(repr=False)
    """Actions [N, width]: int64 from 0, or float32."""
    x_test: Any = field(repr=False)
    y_test: Array = field(repr=False)
    obs_space: gym.Space[Any]
    """Space of one observation, as `VectorEnv` has it."""
    action_space: gym.Space[Any]
    episodes: tuple[int, int]
    """Episodes for training, and for testing."""
    env: str | None = None
    """Id of the environment, if the recording names it."""
    of_env: dict[str, Any] = field(default_factory=dict)
    """Backend, wrappers and arguments of the environment, if they were recorded."""

    is_images = False
    """Nothing here is cropped or mirrored: an action would then mean something else."""

    @cached_property
    def sha256(self) -> str:
        """A hash of all samples and labels: a resumed run must use the data that it began with."""
        spaces = [space_to_json(each) for each in (self.obs_space, self.action_space)]
        arrays = (*_arrays(self.x_train), self.y_train, *_arrays(self.x_test), self.y_test)
        return sha256_of(repr(spaces), arrays)

    @property
    def written(self) -> dict[str, Any]:
        """What a run's `config.yaml` says about the environment, to evaluate the clone in it."""
        return {"env": self.env, **self.of_env}


def episode_data(recording: Recording, split: float, seed: int) -> EpisodeData:
    """Check recorded episodes and divide them into training and test episodes.

    Args:
        recording: The episodes.
        split: Share of the episodes for testing.
        seed: Determines which ones.

    Raises:
        DataError: There are too few, or one does not fit the spaces.
    """
    count = len(recording.episodes)
    if count < 2:
        raise DataError(
            f"{recording.path} has {count} episode{'s' * (count != 1)}",
            "whole episodes are for training or for testing, so there are two or more",
            "muster eval RUN --episodes 20 --save-episodes DIR",
        )
    reader = _EpisodeReader(recording)
    obs, actions = [], []
    for number, (seen, done) in enumerate(recording.episodes):
        x, y = reader.read(number, seen, done)
        obs.append(x)
        actions.append(y)
    tested = split_episodes(count, split, seed)

    def chosen(parts: list[Any], which: bool) -> Any:
        return _joined([part for part, test in zip(parts, tested, strict=True) if test == which])

    data = EpisodeData(
        recording.path.name,
        chosen(obs, False),
        chosen(actions, False),
        chosen(obs, True),
        chosen(actions, True),
        reader.obs_space,
        reader.action_space,
        (count - int(tested.sum()), int(tested.sum())),
        recording.env,
        recording.of_env,
    )
    if min(len(data.y_train), len(data.y_test)) < 2:
        raise DataError(
            f"{recording.path} has {len(data.y_train)} steps for training, and "
            f"{len(data.y_test)} for testing",
            "each set has two steps or more",
            "longer episodes, or more of them",
        )
    return data


class _EpisodeReader:
    """Converts episodes as `VectorEnv` converts what an environment returns.

    Args:
        recording: The episodes and their spaces.
    """

    def __init__(self, recording: Recording) -> None:
        self._path = recording.path
        space = recording.action_space
        try:
            self._rows = observation_rows(recording.obs_space, 1)
            self._actions = action_rows(space, 1)
            self.obs_space = self._rows.space
            self.action_space = self._actions.space
            self._masks = mask_check(str(self._path), self.obs_space, self.action_space)
        except EnvError as error:
            what, why, fix = error.args
            raise DataError(f"{self._path}: {what}", why, fix) from error
        self._start = np.asarray(getattr(space, "start", 0))

    def read(self, number: int, seen: Any, done: Array) -> tuple[Any, Array]:
        """Return the observations and actions [T, width] of an episode, checked."""
        try:
            obs = self._checked(seen)
            if self._masks is not None:
                self._masks.check(obs)
            return obs, self._labels(done, obs)
        except RefusedValue as value:
            step = max(0, value.index)
            what = f"the {value.field} of step {step} {value.what}"
            raise self._wrong(number, what, value.why) from value
        except MusterError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise self._wrong(
                number, str(error), "the episode does not match the spaces of the recording"
            ) from error

    def _checked(self, seen: Any) -> Any:
        """Return observations of the type that networks read."""
        if isinstance(seen, Mapping):
            return self._rows.check(dict(seen))  # type: ignore[arg-type]
        rows: Any = self._rows
        if isinstance(self.obs_space, gym.spaces.Discrete):
            seen = np.asarray(seen).reshape(len(seen))
        return rows.check(np.asarray(seen))

    def _labels(self, done: Array, obs: Any) -> Array:
        """Return actions [T, width], counted from 0 if they are discrete."""
        if isinstance(self.action_space, gym.spaces.Box):
            if done.shape[1:] != self.action_space.shape or not np.isfinite(done).all():
                raise ValueError(
                    f"its actions, {done.dtype} of shape {done.shape[1:]}, are not finite numbers "
                    f"in {self.action_space}"
                )
            return done.reshape(len(done), -1).astype(np.float32)
        if done.dtype.kind not in "iu":
            raise ValueError(f"actions of type {done.dtype} cannot be counted")
        labels: Array = (done.astype(np.int64) - self._start).reshape(len(done), -1)
        sizes = np.array(choices_of(self.action_space))
        if labels.shape[1] != len(sizes):
            raise ValueError(f"actions of shape {done.shape[1:]} are not in {self.action_space}")
        wrong = np.argwhere((labels < 0) | (labels >= sizes))
        if len(wrong):
            step = int(wrong[0, 0])
            raise ValueError(f"the action of step {step}, {done[step]}, is not in the action space")
        if is_masked(self.obs_space):
            self._refuse_illegal(labels, obs[ACTION_MASK], sizes)
        return labels

    @staticmethod
    def _refuse_illegal(labels: Array, mask: Array, sizes: Array) -> None:
        """A network never takes a masked action, so its loss would be infinite."""
        places = labels + np.cumsum([0, *sizes[:-1]])
        legal = np.take_along_axis(mask != 0, places, axis=1).all(axis=1)
        if not legal.all():
            step = int(np.argmin(legal))
            raise ValueError(f"the action of step {step}, {labels[step]}, is illegal by its mask")

    def _wrong(self, number: int, what: str, why: str) -> DataError:
        return DataError(
            f"episode {number} of {self._path} cannot be learnt from: {what}",
            why,
            "record the episodes again, or remove this one",
        )


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {key: _joined([part[key] for part in parts]) for key in parts[0]}
    return np.ascontiguousarray(np.concatenate(parts))


def _arrays(samples: Any) -> list[Array]:
    return list(samples.values()) if isinstance(samples, Mapping) else [samples]
