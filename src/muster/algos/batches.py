"""The input of an update: batches of transitions, validated and sliced for the kernels."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.devices import Device
from muster.errors import OptionError

Array = NDArray[Any]


class TransitionBatch(Protocol):
    """The input of an update, such as `muster.data.Batch`: arrays of B rows, or [K, B]."""

    obs: Any
    """[B, ...], or a dict of such arrays."""
    action: Array
    """Integers [B], as passed to the environment."""
    reward: Array
    """[B], the sum of n steps."""
    next_obs: Any
    """Like `obs`, after these steps."""
    discount: Array
    """[B], gamma^k after k steps; 0 where the episode terminated."""
    weight: Array
    """[B], importance weights; 1 with uniform replay."""


class BatchSlice:
    """Batch k of K, or some rows of one batch, without copying."""

    def __init__(self, batches: TransitionBatch, k: int | slice) -> None:
        self.obs = _at(batches.obs, k)
        self.action = batches.action[k]
        self.reward = batches.reward[k]
        self.next_obs = _at(batches.next_obs, k)
        self.discount = batches.discount[k]
        self.weight = batches.weight[k]


class StagedBatch:
    """A batch whose observations and actions are on the device where networks read them.

    Args:
        batch: The source of all columns.
        device: Receives the data in one copy; on the host nothing is copied.
        action: The actions in the form that networks read.
    """

    def __init__(self, batch: TransitionBatch, device: Device, action: Any = None) -> None:
        self.action: Any
        inputs = batch.obs, batch.next_obs, batch.action if action is None else action
        self.obs, self.next_obs, self.action = inputs if device.is_host else device.stage(inputs)
        self.reward, self.discount, self.weight = batch.reward, batch.discount, batch.weight


def _at(obs: Any, k: int | slice) -> Any:
    if isinstance(obs, Mapping):
        return {key: _at(part, k) for key, part in obs.items()}
    return obs[k]


def count_rows(obs: Any, space: gym.Space[Any]) -> int:
    """Return the number of observations; raise OptionError if they do not match `space`."""
    if isinstance(space, gym.spaces.Dict) and isinstance(obs, Mapping):
        return min(count_rows(obs[key], part) for key, part in space.items())
    shape: tuple[int, ...] = np.shape(obs)
    if not shape or shape[1:] != space.shape:
        raise OptionError(
            f"act got observations of shape {shape}",
            f"it needs one row per environment, and the shape of a row is {space.shape}",
            "act(obs[None]) for a single observation of that shape",
        )
    return shape[0]


def column(name: str, values: Array, dtype: Any, size: int) -> Array:
    """Return one column of a batch in the layout of the kernels; copies only if necessary."""
    array = np.ascontiguousarray(values, dtype)
    if array.shape != (size,):
        raise OptionError(
            f"{name} of the batch has shape {array.shape}, not {(size,)}",
            "each row is one transition",
            "agent.update(buffer.sample(batch_size))",
        )
    return array if array.flags.writeable else array.copy()


def first_not_finite(batch: TransitionBatch) -> str | None:
    """Name the first value of a batch that is NaN or infinite, or None if there is none."""
    for name in ("reward", "discount", "weight", "obs", "next_obs"):  # sequences have no next_obs
        for label, leaf in _leaves(name, getattr(batch, name, ())):
            bad = np.argwhere(~np.isfinite(leaf))
            if len(bad):
                at = bad[0].tolist()
                return f"{label}{at} of the batch is {leaf[tuple(at)]}"
    return None


def _leaves(label: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{label}[{key!r}]", part)
    else:
        yield label, np.asarray(value)
