"""What is done with a network of the user's own before it is used: built from a seed, tried out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from muster.nets.errors import ModelError


def two_of(space: gym.Space[Any]) -> Any:
    """Return two observations of zeros (or the lowest values), stacked as a vector env does."""
    if isinstance(space, gym.spaces.Dict):
        return {key: two_of(part) for key, part in space.items()}
    if isinstance(space, gym.spaces.Discrete):
        return np.full(2, space.start, space.dtype)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return np.stack([space.start, space.start])
    if space.shape is None:
        raise ModelError(
            f"observations of {space} have no fixed shape",
            "a batch of them would be no array",
            "wrap the environment so that it has Box or Dict observations",
        )
    return np.zeros((2, *space.shape), space.dtype)


@contextmanager
def global_generator_seeded(seed: int) -> Iterator[None]:
    """Let layers built inside draw their weights from `seed`; put the global state back after."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
