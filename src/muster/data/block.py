"""`StepBlock`: consecutive steps of some environments, column by column, written in place.

            envs 0 1 2 ... N-1
    seen    t = 0 ... T        T + 1 rows: row t + 1 is the result of step t
    action, reward, ...        T rows
    finals                     one row for each step that ended an episode, in order of (t, env)

Each observation is written once. Where an episode ended, `seen` has the first observation of the
next episode, and `finals` has the true last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from muster.data.obs import Array, Obs, at, map_obs, put
from muster.errors import OptionError


@dataclass(slots=True, eq=False)
class StepBlock:
    """`T` steps of `N` environments. Leading shape [T, N] unless stated otherwise."""

    seen: Obs
    """[T + 1, N, ...]."""
    action: Array
    reward: Array
    """As returned by the environment."""
    terminated: Array
    """Bool: the episode ended, and no further reward is possible."""
    truncated: Array
    """Bool: the episode was cut off, for instance by a time limit. Both may be set."""
    finals: Obs
    """[E, ...], the last observations of the E steps that ended an episode."""
    columns: dict[str, Array] = field(default_factory=dict)
    """Extra columns that the actor wrote, by name."""

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
        """Make a block from steps with explicit next observations, [T, N, ...] each.

        Where no episode ended, `next_obs` must equal the next step's `obs`; this is not checked.
        """
        obs, next_obs = _arrays(obs), _arrays(next_obs)
        terminated, truncated = np.asarray(terminated), np.asarray(truncated)

        def joined(now: Array, then: Array) -> Array:
            if now.shape != then.shape or not now.ndim:
                raise OptionError(
                    f"next_obs has shape {then.shape}, obs has shape {now.shape}",
                    "both must have the same shape: steps first, then environments",
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
        """Observations before each step, [T, N, ...]."""
        return at(self.seen, slice(None, -1))

    @property
    def next_obs(self) -> Any:
        """The true next observations, [T, N, ...]: at an episode's end its final one. A copy."""
        found = map_obs(lambda each: each[1:].copy(), self.seen)
        put(found, self.terminated | self.truncated, self.finals)
        return found


def block_of(fields: Mapping[str, Any]) -> StepBlock:
    """Return a dict of arrays as a block; raise OptionError if fields are missing."""
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    if not set(names) <= fields.keys():
        raise OptionError(
            f"a batch of {sorted(fields)} cannot be stored",
            f"its fields must be {', '.join(names)}, of shape [T, N, ...]",
            "buffer.store(collector.collect())",
        )
    return StepBlock.of(**fields)


def _arrays(value: Any) -> Any:
    return map_obs(np.asarray, value)
