"""Named columns: the arrays that experience consists of, with dtype and shape.

    every step    obs, action, reward, terminated, truncated
    extra         written by an algorithm's actor: logp, value, state, version, priority ...

Images (uint8) stay uint8, other Box values become float32, discrete ones int64. A Dict observation
is one column per key; all code that uses this file sees a list of arrays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from muster.data.obs import Array, Obs
from muster.errors import OptionError


@dataclass(frozen=True, slots=True)
class Column:
    """One array: its name, its dtype and the shape of one item."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    suffix: str = ""
    """Appended to the name in error messages: `['camera']` for a key of a Dict."""
    description: str = ""
    """The space, as far as it matters to a reader of the stored values."""

    @property
    def width(self) -> int:
        """Numbers per item."""
        return math.prod(self.shape)

    def check(self, value: object, lead: tuple[int, ...], name: str | None = None) -> Array:
        """Return `value` as an array of shape lead + shape that can be stored without loss."""
        array = value if type(value) is np.ndarray else np.asarray(value)
        if array.shape != lead + self.shape:
            raise OptionError(
                f"{name or self.name}{self.suffix} has shape {array.shape}",
                f"this buffer stores {lead + self.shape}: environments first, then one item",
                "compare num_envs and the spaces that the buffer was made with",
            )
        if array.dtype is not self.dtype and not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise OptionError(
                f"{name or self.name}{self.suffix} is {array.dtype}",
                f"this buffer stores {self.dtype}, and the conversion would lose information",
                f"make the buffer with the spaces of the environment, or pass {self.dtype}",
            )
        return array


REWARD = Column("reward", np.dtype(np.float32))
TERMINATED = Column("terminated", np.dtype(np.bool_))
TRUNCATED = Column("truncated", np.dtype(np.bool_))

VERSION = Column("version", np.dtype(np.int64))
"""Version of the weights that chose the action."""
PRIORITY = Column("priority", np.dtype(np.float32))
"""Absolute TD error that the actor computed: the basis of a new transition's priority."""

STATE = "state"
"""Name of the column of the recurrent state before the step; its width is the network's."""

_FIXED = frozenset({"obs", "action", "reward", "next_obs", "terminated", "truncated"})


def column_of(name: str, space: object, suffix: str = "") -> Column:
    """Return the column that stores values of a Box, Discrete or MultiDiscrete space."""
    if isinstance(space, spaces.Box):
        dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
        return Column(name, dtype, space.shape, suffix, f"Box({list(space.shape)}, {dtype})")
    if isinstance(space, spaces.Discrete):
        description = f"Discrete({space.n}, start={space.start})"
        return Column(name, np.dtype(np.int64), (), suffix, description)
    if isinstance(space, spaces.MultiDiscrete):
        description = f"MultiDiscrete({space.nvec.tolist()})"
        return Column(name, np.dtype(np.int64), space.nvec.shape, suffix, description)
    raise OptionError(
        f"{name}_space{suffix}={space!r} is not possible",
        "replay stores Box, Discrete and MultiDiscrete, and for observations a Dict of these",
        "wrap the environment, for instance in gymnasium.wrappers.FlattenObservation",
    )


class ObsColumns:
    """The columns of an observation space, and the conversion between them and observations."""

    def __init__(self, space: object) -> None:
        self._keys: tuple[str, ...] | None = None
        if isinstance(space, spaces.Dict):
            self._keys = tuple(space.spaces)
            parts = space.spaces.items()
            self.columns = tuple(column_of("obs", each, f"[{key!r}]") for key, each in parts)
        else:
            self.columns = (column_of("obs", space),)

    @property
    def description(self) -> str:
        """The space, as far as it matters to a reader of the stored values."""
        return ", ".join(f"{each.suffix}{each.description}" for each in self.columns)

    def split(self, name: str, obs: object, lead: tuple[int, ...]) -> list[Array]:
        """Return the checked arrays of an observation, in the order of `columns`."""
        pairs = zip(self.columns, self.parts(name, obs), strict=True)
        return [column.check(part, lead, name) for column, part in pairs]

    def parts(self, name: str, obs: object) -> list[Any]:
        """Return the array of an observation for each of `columns`, unchecked."""
        keys = self._keys
        if keys is None:
            return [obs]
        if not isinstance(obs, dict) or obs.keys() != set(keys):
            given = sorted(obs) if isinstance(obs, dict) else type(obs).__name__
            raise OptionError(
                f"{name} is {given}",
                f"the observation space is a Dict of {sorted(keys)}",
                "pass a dict of arrays with these keys",
            )
        return [obs[key] for key in keys]

    def join(self, arrays: Sequence[Array]) -> Obs:
        """Return the observation that consists of these arrays."""
        if self._keys is None:
            return arrays[0]
        return dict(zip(self._keys, arrays, strict=True))


class Schema:
    """All columns of one kind of experience.

    Args:
        obs_space: Space of one environment.
        action_space: Space of one environment.
        columns: Extra columns that an actor writes.
    """

    def __init__(
        self, obs_space: object, action_space: object, columns: Sequence[Column] = ()
    ) -> None:
        self.obs = ObsColumns(obs_space)
        self.action = column_of("action", action_space)
        self.columns = tuple(columns)
        names = [each.name for each in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1 or name in _FIXED})
        if twice:
            raise OptionError(
                f"the schema has the columns {', '.join(twice)} twice",
                f"every schema has {', '.join(sorted(_FIXED))}, and each name once",
                "leave them out",
            )

    def has(self, column: Column) -> bool:
        """Whether actors write this column."""
        return column.name in {each.name for each in self.columns}
