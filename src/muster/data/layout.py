"""How observations and actions of a space are stored: which arrays, of which dtype and shape.

Images (uint8) stay uint8, other Box values become float32, discrete ones int64. A Dict observation
is one array per key; everything behind this file sees a list of arrays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from muster.data.batch import Array, Obs
from muster.errors import OptionError


@dataclass(frozen=True, slots=True)
class Field:
    """One array: its dtype and the shape of one item."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    suffix: str = ""
    """What an error adds to the argument's name: `['camera']` for a key of a Dict."""
    description: str = ""
    """The space, as far as it matters to who reads the stored values."""

    @property
    def width(self) -> int:
        """Numbers per item."""
        return math.prod(self.shape)

    def check(self, name: str, value: object, lead: tuple[int, ...]) -> Array:
        """Return `value` as an array of shape lead + shape that can be stored without harm."""
        array = value if type(value) is np.ndarray else np.asarray(value)
        if array.shape != lead + self.shape:
            raise OptionError(
                f"{name}{self.suffix} has shape {array.shape}",
                f"this buffer stores {lead + self.shape}: environments first, then one item",
                "compare num_envs and the spaces that the buffer was made with",
            )
        if array.dtype is not self.dtype and not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise OptionError(
                f"{name}{self.suffix} is {array.dtype}",
                f"this buffer stores {self.dtype}, and the conversion would lose what it says",
                f"make the buffer with the spaces of the environment, or pass {self.dtype}",
            )
        return array


REWARD = Field(np.dtype(np.float32), ())
FLAG = Field(np.dtype(np.bool_), ())


def field_of(name: str, space: object, suffix: str = "") -> Field:
    """Return how values of a Box, Discrete or MultiDiscrete space are stored."""
    if isinstance(space, spaces.Box):
        dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
        return Field(dtype, space.shape, suffix, f"Box({list(space.shape)}, {dtype})")
    if isinstance(space, spaces.Discrete):
        description = f"Discrete({space.n}, start={space.start})"
        return Field(np.dtype(np.int64), (), suffix, description)
    if isinstance(space, spaces.MultiDiscrete):
        description = f"MultiDiscrete({space.nvec.tolist()})"
        return Field(np.dtype(np.int64), space.nvec.shape, suffix, description)
    raise OptionError(
        f"{name}{suffix}={space!r} is not possible",
        "replay stores Box, Discrete and MultiDiscrete, and for observations a Dict of these",
        "wrap the environment, for instance in gymnasium.wrappers.FlattenObservation",
    )


class ObsLayout:
    """The arrays of an observation space, and the way between them and what users see."""

    def __init__(self, space: object) -> None:
        self._keys: tuple[str, ...] | None = None
        if isinstance(space, spaces.Dict):
            self._keys = tuple(space.spaces)
            parts = space.spaces.items()
            self.fields = tuple(field_of("obs_space", each, f"[{key!r}]") for key, each in parts)
        else:
            self.fields = (field_of("obs_space", space),)

    @property
    def description(self) -> str:
        """The space, as far as it matters to who reads the stored values."""
        return ", ".join(f"{field.suffix}{field.description}" for field in self.fields)

    def split(self, name: str, obs: object, lead: tuple[int, ...]) -> list[Array]:
        """Return the checked arrays of an observation, in the order of `fields`."""
        keys = self._keys
        if keys is None:
            return [self.fields[0].check(name, obs, lead)]
        if not isinstance(obs, dict) or obs.keys() != set(keys):
            given = sorted(obs) if isinstance(obs, dict) else type(obs).__name__
            raise OptionError(
                f"{name} is {given}",
                f"the observation space is a Dict of {sorted(keys)}",
                "pass a dict of arrays with these keys",
            )
        return [
            field.check(name, obs[key], lead) for key, field in zip(keys, self.fields, strict=True)
        ]

    def join(self, arrays: Sequence[Array]) -> Obs:
        """Return the observation that these arrays are."""
        if self._keys is None:
            return arrays[0]
        return dict(zip(self._keys, arrays, strict=True))
