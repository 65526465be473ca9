"""Checks that a run will fit into memory, before anything is allocated."""

import math
from itertools import pairwise
from typing import Any

import gymnasium as gym

from muster import container
from muster.algos.in_step_config import InStepConfig
from muster.errors import OptionError
from muster.recipes.settings import Settings

COPIES_OF_WEIGHTS = 5
"""Weights, target weights, gradient, and the two moments of Adam."""


def memory_needs(
    settings: Settings, obs_space: gym.Space[Any], action_space: gym.Space[Any]
) -> dict[str, int]:
    """Return the bytes of memory that options require, by the name of the option."""
    config = settings.config
    numbers, size = _numbers(obs_space)
    weights = 0 if config.model else _weights(numbers, obs_space, config.hidden)
    actions = 8 * max(1, math.prod(action_space.shape or ()))
    needs = config.memory_needs(settings.options.num_envs, size, actions)
    needs["hidden"] = weights * 4 * COPIES_OF_WEIGHTS
    return needs


def check_memory(
    settings: Settings, obs_space: gym.Space[Any], action_space: gym.Space[Any]
) -> None:
    """Raise OptionError if an option needs more memory than the machine or container has."""
    config = settings.config
    here = container.memory()
    for name, need in memory_needs(settings, obs_space, action_space).items():
        if need > here.amount:
            owner = config if hasattr(config, name) else settings.options
            raise OptionError(
                f"{name}={getattr(owner, name)!r} does not fit into memory",
                f"it needs {_gib(need)} GiB, and {_gib(here.amount)} is {here.by}",
                f"{name}={getattr(type(owner), name)!r}",
            )


def shared_memory_need(settings: Settings, agent: Any) -> int:
    """Return the bytes that workers in step share; 0 for other programs."""
    if not isinstance(settings.config, InStepConfig):
        return 0
    from muster.data.slots import nbytes
    from muster.workers.slot_worker import slot_fields, slot_plan

    plan = slot_plan(agent, settings.options.num_envs)
    return nbytes(slot_fields(agent, plan, max(1, settings.workers)))


def check_shared_memory(settings: Settings, agent: Any) -> None:
    """Raise OptionError if the shared memory of workers in step is larger than memory."""
    need = shared_memory_need(settings, agent)
    here = container.memory()
    if isinstance(settings.config, InStepConfig) and need > here.amount:
        raise OptionError(
            f"slots={settings.config.slots} and workers={settings.workers} do not fit into memory",
            f"rollouts, a gradient per slot and the weights of each worker need "
            f"{_gib(need)} GiB, and {_gib(here.amount)} is {here.by}",
            f"slots={InStepConfig.slots}",
        )


def _gib(amount: int) -> str:
    return f"{amount / 2**30:,.1f}"


def _weights(numbers: int, obs_space: gym.Space[Any], hidden: tuple[int, ...]) -> int:
    widths = [1 if _is_image(obs_space) else numbers, *hidden]
    return sum(before * after for before, after in pairwise(widths))


def _numbers(space: gym.Space[Any]) -> tuple[int, int]:
    """Return the network inputs of one observation, and the bytes of one observation in replay."""
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
