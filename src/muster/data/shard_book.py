"""`ShardBook`: the knowledge of the drawing side about all shards, and its conclusions.

    saw(shard, generation, contents)     a higher generation is a new incarnation, which began empty
    ask(shape) -> which shard, where     answer(...) of all of them -> one Batch with global weights
    note_errors(index, td_error)         -> for each shard, in its own numbers

`batch.index` is (number in the shard + all numbers of its earlier generations) * shards + shard. So
it is unique, and an index of an earlier generation is recognised. Knows no nodes and no messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from muster.data.obs import Array
from muster.data.priorities import check_errors, check_given_out
from muster.data.shard_state import Contents, Learned
from muster.data.shards import Floats, Ints, global_weights, locate, positions

NOBODY = -1


@dataclass(slots=True, eq=False)
class KnownShard:
    """The knowledge about one shard."""

    generation: int = NOBODY
    contents: Contents = field(default_factory=Contents)
    before: int = 0
    """Transitions that earlier generations had stored. Numbers continue after theirs."""
    errors: list[tuple[Ints, Floats]] = field(default_factory=list)
    """Errors to send to the shard: index, td_error."""


@dataclass(slots=True, eq=False)
class Asked:
    """A requested batch."""

    shape: tuple[int, ...]
    shard: Ints
    """The shard of each row."""
    within: Floats
    """The fraction of the shard's mass at which each row lies."""
    masses: Floats
    rows: dict[int, Ints]
    """The rows requested from each shard."""
    parts: dict[int, Any] = field(default_factory=dict)
    chance: Floats | None = None

    def wanted(self, shard: int) -> Floats:
        """Return the fractions of a shard's mass that are requested from it."""
        return self.within[self.rows[shard]]

    @property
    def is_complete(self) -> bool:
        """Whether every shard has answered."""
        return len(self.parts) == len(self.rows)

    def lacks(self, shard: int) -> bool:
        """Whether this shard has not answered yet."""
        return shard in self.rows and shard not in self.parts


class ShardBook:
    """Knows shards by their numbers, from 0.

    Args:
        shards: Number of shards.
        prioritized: As in the shards.
        rng: Draws positions in the shards.
    """

    def __init__(self, shards: int, prioritized: bool, rng: np.random.Generator) -> None:
        self.shards = [KnownShard() for _ in range(shards)]
        self.rng = rng
        self._prioritized = prioritized
        self._largest = 0.0

    @property
    def stored(self) -> int:
        """Transitions in all shards."""
        return sum(shard.contents.stored for shard in self.shards)

    def begin(self, number: int, generation: int) -> bool:
        """Record a generation of a shard; return whether it is newer than the known one."""
        shard = self.shards[number]
        if generation <= shard.generation:
            return False
        shard.before += shard.contents.inserted
        shard.generation, shard.contents = generation, Contents()
        shard.errors.clear()
        return True

    def saw(self, number: int, contents: Contents) -> None:
        """Record the contents of the current generation of a shard."""
        self.shards[number].contents = contents
        self._largest = max(self._largest, contents.largest)

    def ask(self, shape: tuple[int, ...], masses: Sequence[float] | None = None) -> Asked:
        """Choose the origin of the rows of a batch.

        Args:
            shape: Shape of the batch.
            masses: Masses of the shards; by default the last known ones.
        """
        if masses is None:
            masses = [shard.contents.mass for shard in self.shards]
        where = positions(int(np.prod(shape)), self.rng, stratified=self._prioritized)
        shard, within = locate(where, masses)
        rows = {int(k): np.flatnonzero(shard == k) for k in np.unique(shard)}
        chance = np.empty(shard.size) if self._prioritized else None
        return Asked(shape, shard, within, np.asarray(masses), rows, chance=chance)

    def answer(self, asked: Asked, number: int, batch: Any, chance: Floats | None) -> None:
        """Add the rows that a shard has drawn, in its own numbers."""
        batch.index = (batch.index + self.shards[number].before) * len(self.shards) + number
        asked.parts[number] = batch
        if asked.chance is not None and chance is not None:
            asked.chance[asked.rows[number]] = chance

    def batch(self, asked: Asked, beta: float) -> Any:
        """Return the batch after all shards have answered."""
        parts = [(asked.rows[number], part) for number, part in asked.parts.items()]
        batch = type(parts[0][1]).gather(parts)
        if asked.chance is not None:
            batch.weight = global_weights(asked.shard, asked.chance, asked.masses, beta)
        return batch.reshape(asked.shape)

    def note_errors(self, index: Array, td_error: Array) -> None:
        """Keep errors for the shards they concern; skip those of earlier generations."""
        if not self._prioritized:
            return
        ids, size = check_errors(index, td_error)
        ids, size = ids.ravel(), size.ravel()
        for number, shard in enumerate(self.shards):
            mine = ids % len(self.shards) == number
            own, errors = ids[mine] // len(self.shards) - shard.before, size[mine]
            alive = own >= 0
            check_given_out(own[alive], shard.contents.inserted)
            if alive.any():
                shard.errors.append((own[alive], errors[alive]))

    def take_errors(self, number: int) -> Learned | None:
        """Return the pending errors of a shard, once; None if replay is uniform."""
        if not self._prioritized:
            return None
        errors = self.shards[number].errors
        index, sizes = zip(*errors, (np.empty(0, np.int64), np.empty(0)), strict=True)
        errors.clear()
        return Learned(np.concatenate(index), np.concatenate(sizes), self._largest)
