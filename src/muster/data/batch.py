"""What goes into a replay buffer and what comes out: structures of arrays, no objects per step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Obs = Array | dict[str, Array]
"""Observations: one array, or one per key for a Dict space."""


@dataclass(slots=True, eq=False)
class Transitions:
    """`T` steps of `N` environments, as a collector returns them. Leading shape [T, N]."""

    obs: Obs
    action: Array
    reward: Array
    """As the environment gave it."""
    next_obs: Obs
    """The true next observation: at an episode's end its final one, not that of the next reset."""
    terminated: Array
    """Bool: the episode ended, and nothing can be earned after it."""
    truncated: Array
    """Bool: the episode was cut off, by a time limit for instance. Both may be set."""

    def __len__(self) -> int:
        """Return the number of transitions, T * N."""
        return int(self.terminated.size)


@dataclass(slots=True, eq=False)
class Batch:
    """Sampled transitions, leading shape [B] or, from `sample_many`, [count, B]. Arrays are own."""

    obs: Obs
    action: Array
    """int64 for Discrete and MultiDiscrete, float32 for Box."""
    reward: Array
    """float32, the discounted sum over up to `n_step` steps."""
    next_obs: Obs
    """The observation after the last of these steps."""
    discount: Array
    """float32, what the value of `next_obs` counts: gamma^k after k steps, 0 where terminated."""
    weight: Array
    """float32, importance weight; 1 where replay is uniform."""
    index: Array
    """int64, the transition's number since the buffer was made: for `update_priorities`."""

    def reshape(self, lead: tuple[int, ...]) -> Self:
        """Return the same rows [B] in another leading shape; views of the same memory."""
        return self._of([self], lambda arrays: arrays[0].reshape(lead + arrays[0].shape[1:]))

    @classmethod
    def gather(cls, parts: Sequence[tuple[Array, Self]]) -> Self:
        """Return one batch [B] that has each part's rows where the part says.

        Args:
            parts: For each, the places [n] of its rows, and the rows. Together they fill the batch.
        """
        count = sum(len(rows) for rows, _ in parts)

        def one(arrays: Sequence[Array]) -> Array:
            whole = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
            for (rows, _), array in zip(parts, arrays, strict=True):
                whole[rows] = array
            return whole

        return cls._of([batch for _, batch in parts], one)

    @classmethod
    def _of(cls, batches: Sequence[Self], one: Callable[[Sequence[Array]], Array]) -> Self:
        """Make a batch of what `one` makes of each array of these."""

        def made(name: str) -> Obs:
            values = [getattr(batch, name) for batch in batches]
            if isinstance(values[0], dict):
                return {key: one([value[key] for value in values]) for key in values[0]}
            return one(values)

        return cls(**{field.name: made(field.name) for field in fields(cls)})  # type: ignore[arg-type]


@dataclass(slots=True, eq=False)
class VersionedBatch(Batch):
    """A batch that knows which weights its actions were chosen by."""

    version: Array
    """int64, of those weights; 0 where it is not known."""

    @classmethod
    def of(cls, batch: Batch, version: Array) -> Self:
        """Make one of a batch."""
        return cls(
            **{each.name: getattr(batch, each.name) for each in fields(batch)}, version=version
        )
