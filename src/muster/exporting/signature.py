"""The inputs and outputs of an exported policy: names, shapes and types, in order.

obs, or the parts of a Dict by name [, memory] -> action [, next_memory]
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

MEMORY, NEXT_MEMORY, ACTION, OBS = "memory", "next_memory", "action", "obs"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output."""

    name: str
    shape: tuple[int, ...]
    """Shape of one row: every input and output has one row for each environment."""
    dtype: str
    """The NumPy name of the type."""


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of an exported policy."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @classmethod
    def of(
        cls, obs_space: gym.Space[Any], action_space: gym.Space[Any], memory_width: int
    ) -> "Signature":
        """Return the signature of a policy.

        Args:
            obs_space: The space of one observation, as networks read it: floats are float32.
            action_space: The environment's own space of one action.
            memory_width: Numbers of memory per environment; 0 for none.
        """
        parts = obs_space.spaces if isinstance(obs_space, gym.spaces.Dict) else {OBS: obs_space}
        taken = set(parts)
        inputs = [TensorSpec(name, *_of(part)) for name, part in parts.items()]
        outputs = [TensorSpec(_free(ACTION, taken), *_of(action_space))]
        if memory_width:
            remembered = (memory_width,), "float32"
            inputs.append(TensorSpec(_free(MEMORY, taken), *remembered))
            outputs.append(TensorSpec(_free(NEXT_MEMORY, taken), *remembered))
        return cls(tuple(inputs), tuple(outputs))

    def described(self) -> dict[str, dict[str, Any]]:
        """Return plain values, by name and in order: shapes begin with "batch"."""
        return {"inputs": _described(self.inputs), "outputs": _described(self.outputs)}


def _of(space: gym.Space[Any]) -> tuple[tuple[int, ...], str]:
    return tuple(space.shape or ()), np.dtype(space.dtype).name


def _free(name: str, taken: set[str]) -> str:
    """Return a name that differs from all parts of the observation, as a graph requires."""
    while name in taken:
        name += "_"
    return name


def _described(specs: Iterable[TensorSpec]) -> dict[str, Any]:
    return {each.name: {"shape": ["batch", *each.shape], "dtype": each.dtype} for each in specs}
