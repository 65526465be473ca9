"""Whether what a run will hold fits into this machine, asked before anything is allocated."""

import math
import os
from itertools import pairwise
from typing import Any

import gymnasium as gym

from muster.algos.dqn_config import DQNConfig
from muster.errors import OptionError

COPIES_OF_WEIGHTS = 5
"""Weights, target weights, gradient, and the two moments of Adam."""


def check_memory(config: DQNConfig, obs_space: gym.Space[Any]) -> None:
    """Raise OptionError if what an option asks for is larger than the memory of this machine."""
    numbers, size = _numbers(obs_space)
    widths = [1 if _is_image(obs_space) else numbers, *config.hidden]
    weights = sum(before * after for before, after in pairwise(widths))
    transition = size + 13  # and an action, a reward and a flag
    pair = 2 * size  # a batch, and what is on its way to replay, has the next observation too
    needs = {
        "buffer_size": config.buffer_size * transition,
        "batch_size": config.batch_size * pair,
        "updates_per_train": config.updates_per_train * config.batch_size * pair,
        "train_every": config.train_every * pair,
        "hidden": 0 if config.model else weights * 4 * COPIES_OF_WEIGHTS,
    }
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, size in needs.items():
        if size > here:
            raise OptionError(
                f"{name}={getattr(config, name)!r} does not fit into memory",
                f"it needs {size / 2**30:,.1f} GiB, and this machine has {here / 2**30:.1f}",
                f"{name}={getattr(DQNConfig, name)!r}",
            )


def _numbers(space: gym.Space[Any]) -> tuple[int, int]:
    """Return how many numbers one observation is to a network, and its bytes in replay."""
    if isinstance(space, gym.spaces.Dict):
        parts = [_numbers(part) for part in space.spaces.values()]
        return sum(n for n, _ in parts), sum(size for _, size in parts)
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n), 8
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum()), 8 * space.nvec.size
    count = math.prod(space.shape or ())
    return count, count * (1 if _is_image(space) else 4)


def _is_image(space: gym.Space[Any]) -> bool:
    return space.dtype is not None and space.dtype.name == "uint8"
