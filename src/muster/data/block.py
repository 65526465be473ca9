"""`StepBlock`: consecutive steps of some environments, column by column, written in place.

            envs 0 1 2 ... N-1
    seen    t = 0 ... T        T + 1 rows: row t + 1 is what step t led to, and step t + 1 acts on
    action, reward, ...        T rows
    finals                     one row for each step that ended an episode, in order of (t, env)

Each observation is written once. Only where an episode ended, `seen` has the first observation of
the next one, and the true last one is in `finals`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from muster.data.obs import Array, Obs, at, map_obs, put
from muster.errors import OptionError


@dataclass(slots=True, eq=False)
class StepBlock:
    """`T` steps of `N` environments. Leading shape [T, N] where nothing else is said."""

    seen: Obs
    """[T + 1, N, ...]."""
    action: Array
    reward: Array
    """As the environment gave it."""
    terminated: Array
    """Bool: the episode ended, and nothing can be earned after it."""
    truncated: Array
    """Bool: the episode was cut off, by a time limit for instance. Both may be set."""
    finals: Obs
    """[E, ...], of the E steps with an end."""
    columns: dict[str, Array] = field(default_factory=dict)
    """What the actor wrote besides, by name."""

    @classmethod
    def of(
        cls,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        **columns: Any,
    ) -> Self:
        """Make a block of steps that have their next observations beside them, [T, N, ...] each.

        `next_obs` is relied upon to be the next step's `obs` where no episode ended.
        """
        obs, next_obs = _arrays(obs), _arrays(next_obs)
        terminated, truncated = np.asarray(terminated), np.asarray(truncated)

        def joined(now: Array, then: Array) -> Array:
            if now.shape != then.shape or not now.ndim:
                raise OptionError(
                    f"next_obs has shape {then.shape}, obs has shape {now.shape}",
                    "each step has one of both: steps first, then environments",
                    "compare them",
                )
            return np.concatenate([now, then[-1:]])

        ended = terminated.astype(np.bool_) | truncated.astype(np.bool_)
        return cls(
            map_obs(joined, obs, next_obs),
            np.asarray(action),
            np.asarray(reward),
            terminated,
            truncated,
            at(next_obs, ended),
            {name: np.asarray(each) for name, each in columns.items()},
        )

    def __len__(self) -> int:
        """Return the number of transitions, T * N."""
        return int(self.terminated.size)

    @property
    def obs(self) -> Any:
        """What was seen before each step, [T, N, ...]."""
        return at(self.seen, slice(None, -1))

    @property
    def next_obs(self) -> Any:
        """The true next observations, [T, N, ...]: at an episode's end its final one. A copy."""
        found = map_obs(lambda each: each[1:].copy(), self.seen)
        put(found, self.terminated | self.truncated, self.finals)
        return found


def block_of(fields: Mapping[str, Any]) -> StepBlock:
    """Return the steps that a dict of arrays holds, or refuse it."""
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    if not set(names) <= fields.keys():
        raise OptionError(
            f"a batch of {sorted(fields)} cannot be stored",
            f"its fields are {', '.join(names)}, of shape [T, N, ...]",
            "buffer.store(collector.collect())",
        )
    return StepBlock.of(**fields)


def _arrays(value: Any) -> Any:
    return map_obs(np.asarray, value)
