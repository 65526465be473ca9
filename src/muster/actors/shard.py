"""`Shard`: a part of a replay buffer. Lives in an actor of its own."""

import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.data import Batch, Transitions
from muster.data import ReplayBuffer as Rows

_REMEMBERED = 256
"""Numbers of stored fragments that are known for each client: more than can be on the way."""


class ShardSample(NamedTuple):
    """What a shard drew."""

    generation: int
    """Which life of the shard: the ids of an earlier one mean nothing in this."""
    batch: Batch | None
    """None: it has nothing."""
    chance: NDArray[np.float64]
    """[B] How probable each row was."""
    version: NDArray[np.int64]
    """[B] Of the weights that chose the actions."""


class Shard:
    """Keeps transitions of many workers.

    Args:
        rows: Options of `muster.data.ReplayBuffer`.
    """

    def __init__(self, rows: dict[str, Any]) -> None:
        self._rows = Rows(**rows)
        self._generation = time.time_ns()
        self._versions = np.zeros(self._rows.capacity // self._rows.num_envs, np.int64)
        self._seen: dict[str, deque[int]] = {}

    def store(self, client: str, sequence: int, data: Transitions, version: int) -> int:
        """Keep a fragment, once, and return the life that this is."""
        seen = self._seen.setdefault(client, deque(maxlen=_REMEMBERED))
        if sequence not in seen:
            first = self._rows.inserted // self._rows.num_envs
            self._rows.push(data)
            # The next fragment may be another worker's: nothing continues this one.
            self._rows.cut_episodes()
            steps = len(data.terminated)
            self._versions[np.arange(first, first + steps) % self._versions.size] = version
            seen.append(sequence)
        return self._generation

    def sample(self, count: int) -> ShardSample:
        """Draw, with replacement."""
        stored = len(self._rows)
        if not stored:
            nothing = np.zeros(0)
            return ShardSample(self._generation, None, nothing, nothing.astype(np.int64))
        # A buffer gives no more than it has; a small one is asked several times.
        sizes = [stored] * (count // stored) + [count % stored] * (count % stored > 0)
        drawn = [batch for size in sizes if (batch := self._rows.sample(size)) is not None]
        batch = drawn[0] if len(drawn) == 1 else joined(drawn)
        row = (batch.index // self._rows.num_envs) % self._versions.size
        return ShardSample(
            self._generation, batch, self._rows.chance(batch.index), self._versions[row].copy()
        )

    def update_priorities(
        self, generation: int, index: NDArray[np.int64], td_error: NDArray[Any]
    ) -> bool:
        """Set priorities; False if they are of an earlier life."""
        if generation != self._generation:
            return False
        self._rows.update_priorities(index, td_error)
        return True

    def look(self) -> tuple[int, float, int]:
        """Return the life that this is, the mass of all transitions, and their number."""
        return self._generation, self._rows.mass, len(self._rows)


def joined(batches: list[Batch]) -> Batch:
    """Return the rows of all batches, in new arrays."""

    def column(name: str) -> Any:
        parts = [getattr(batch, name) for batch in batches]
        if isinstance(parts[0], dict):
            return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return np.concatenate(parts)

    names = ("obs", "action", "reward", "next_obs", "discount", "weight", "index")
    return Batch(**{name: column(name) for name in names})
