"""The output of a replay buffer: structures of arrays, without objects per step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from muster.data.obs import Array, Obs, map_obs


class BatchRows:
    """Rows [B] of several arrays, some of them in dicts."""

    __slots__ = ()

    def reshape(self, lead: tuple[int, ...]) -> Self:
        """Return the same rows [B] in another leading shape; views of the same memory."""
        return self._of([self], lambda array: array.reshape(lead + array.shape[1:]))

    def part(self, k: int | slice) -> Self:
        """Return batch k of several, [count, B], or some rows of one; views of the same memory."""
        return self._of([self], lambda array: array[k])

    @classmethod
    def gather(cls, parts: Sequence[tuple[Array, Self]]) -> Self:
        """Return one batch [B] that combines the rows of several parts.

        Args:
            parts: For each part, the destinations [n] of its rows, and the rows. Together the
                destinations cover the batch.
        """
        count = sum(len(rows) for rows, _ in parts)

        def one(*arrays: Array) -> Array:
            whole = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
            for (rows, _), array in zip(parts, arrays, strict=True):
                whole[rows] = array
            return whole

        return cls._of([batch for _, batch in parts], one)

    @classmethod
    def _of(cls, batches: Sequence[Self], one: Callable[..., Array]) -> Self:
        """Make a batch by applying `one` to each array of these batches."""
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        return cls(**{n: map_obs(one, *(getattr(batch, n) for batch in batches)) for n in names})


@dataclass(slots=True, eq=False)
class Batch(BatchRows):
    """Sampled transitions, leading shape [B] or, from `sample_many`, [count, B]. Copies."""

    obs: Obs
    action: Array
    """int64 for Discrete and MultiDiscrete, float32 for Box."""
    reward: Array
    """float32, the discounted sum over up to `n_step` steps."""
    next_obs: Obs
    """The observation after the last of these steps."""
    discount: Array
    """float32, the factor of the value of `next_obs`: gamma^k after k steps, 0 where terminated."""
    weight: Array
    """float32, importance weight; 1 with uniform replay."""
    index: Array
    """int64, the transition's number since the buffer was made, for `update_priorities`. The number
    is unique, so it also shows whether a slot was overwritten."""
    columns: dict[str, Array] = field(default_factory=dict)
    """Extra columns that the actor wrote, by name, according to the buffer's schema."""


@dataclass(slots=True, eq=False)
class SequenceBatch(BatchRows):
    """Sampled sequences of up to L steps of one episode each, leading shape [B, L]."""

    obs: Obs
    """[B, L + 1, ...]: before each step and after the last one; padded with the last one."""
    action: Array
    reward: Array
    """float32, the discounted sum over up to n steps within the sequence."""
    discount: Array
    """float32, the factor of the value after these steps: gamma^k, 0 where terminated."""
    ahead: Array
    """int64: the index in `obs` that these steps lead to."""
    valid: Array
    """bool: whether the step exists."""
    learn: Array
    """bool: whether to learn from the step; False for padding and burn-in."""
    weight: Array
    """float32 [B]."""
    index: Array
    """int64 [B]: number of the first step."""
    columns: dict[str, Array] = field(default_factory=dict)
    """Extra columns that the actor wrote, by name; `state[:, 0]` is the stored recurrent state."""
