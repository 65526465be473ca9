"""Observations: one array, or a dict of arrays for a Dict space, with the same calls for both."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Obs = Array | dict[str, Array]
"""One array, or one per key for a Dict space."""


def map_obs(function: Callable[..., Any], obs: Any, *others: Any) -> Any:
    """Apply a function to each array of `obs`, with the matching arrays of `others`."""
    if isinstance(obs, Mapping):
        return {key: function(obs[key], *(each[key] for each in others)) for key in obs}
    return function(obs, *others)


def at(obs: Any, index: Any) -> Any:
    """Return `obs[index]` of each array."""
    if isinstance(obs, dict):
        return {key: part[index] for key, part in obs.items()}
    return obs[index]


def put(obs: Any, index: Any, value: Any) -> None:
    """Do `obs[index] = value` for each array."""
    if isinstance(obs, dict):
        for key, part in obs.items():
            part[index] = value[key]
    else:
        obs[index] = value


def concatenated(rows: list[Any]) -> Any:
    """Return observations [n, ...], concatenated."""
    return map_obs(lambda *parts: np.concatenate(parts), *rows)
