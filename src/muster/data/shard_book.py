"""`ShardBook`: what whoever draws knows of all shards, and what follows from it.

    saw(shard, generation, contents)     a higher generation is a new life, which began empty
    ask(shape) -> which shard, where     answer(...) of all of them -> one Batch with global weights
    note_errors(index, td_error)         -> for each shard, in its own numbers

`batch.index` is (number in the shard + all numbers of its former lives) * shards + shard: so no two
transitions have the same, and what concerns a former life is recognised. Knows no node, no message.
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
    """What is known of one shard."""

    generation: int = NOBODY
    contents: Contents = field(default_factory=Contents)
    before: int = 0
    """Transitions that lives before this one had stored. Numbers go on where theirs ended."""
    errors: list[tuple[Ints, Floats]] = field(default_factory=list)
    """What to tell it of priorities: index, td_error."""


@dataclass(slots=True, eq=False)
class Asked:
    """A batch that was asked for."""

    shape: tuple[int, ...]
    shard: Ints
    """Where each row comes from."""
    within: Floats
    """And from which part of its mass."""
    masses: Floats
    rows: dict[int, Ints]
    """Which rows each shard was asked for."""
    parts: dict[int, Any] = field(default_factory=dict)
    chance: Floats | None = None

    def wanted(self, shard: int) -> Floats:
        """Return which parts of its mass a shard is asked for."""
        return self.within[self.rows[shard]]

    @property
    def is_complete(self) -> bool:
        """Whether every shard has answered."""
        return len(self.parts) == len(self.rows)

    def lacks(self, shard: int) -> bool:
        """Whether this shard is still to answer."""
        return shard in self.rows and shard not in self.parts


class ShardBook:
    """Knows shards by their numbers, from 0.

    Args:
        shards: How many there are.
        prioritized: As they are.
        rng: Draws places in them.
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
        """Note a life of a shard; whether it is a later one than was known."""
        shard = self.shards[number]
        if generation <= shard.generation:
            return False
        shard.before += shard.contents.inserted
        shard.generation, shard.contents = generation, Contents()
        shard.errors.clear()
        return True

    def saw(self, number: int, contents: Contents) -> None:
        """Note what the present life of a shard holds."""
        self.shards[number].contents = contents
        self._largest = max(self._largest, contents.largest)

    def ask(self, shape: tuple[int, ...], masses: Sequence[float] | None = None) -> Asked:
        """Choose where the rows of a batch come from.

        Args:
            shape: Of the batch.
            masses: Of the shards; without it, as they were last seen.
        """
        if masses is None:
            masses = [shard.contents.mass for shard in self.shards]
        where = positions(int(np.prod(shape)), self.rng, stratified=self._prioritized)
        shard, within = locate(where, masses)
        rows = {int(k): np.flatnonzero(shard == k) for k in np.unique(shard)}
        chance = np.empty(shard.size) if self._prioritized else None
        return Asked(shape, shard, within, np.asarray(masses), rows, chance=chance)

    def answer(self, asked: Asked, number: int, batch: Any, chance: Floats | None) -> None:
        """Take what a shard has drawn, by its own numbers."""
        batch.index = (batch.index + self.shards[number].before) * len(self.shards) + number
        asked.parts[number] = batch
        if asked.chance is not None and chance is not None:
            asked.chance[asked.rows[number]] = chance

    def batch(self, asked: Asked, beta: float) -> Any:
        """Return the batch that all shards have answered."""
        parts = [(asked.rows[number], part) for number, part in asked.parts.items()]
        batch = type(parts[0][1]).gather(parts)
        if asked.chance is not None:
            batch.weight = global_weights(asked.shard, asked.chance, asked.masses, beta)
        return batch.reshape(asked.shape)

    def note_errors(self, index: Array, td_error: Array) -> None:
        """Keep errors for the shards they concern; those of former lives are passed over."""
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
        """Return what a shard is to be told of priorities, once; None where replay is uniform."""
        if not self._prioritized:
            return None
        errors = self.shards[number].errors
        index, sizes = zip(*errors, (np.empty(0, np.int64), np.empty(0)), strict=True)
        errors.clear()
        return Learned(np.concatenate(index), np.concatenate(sizes), self._largest)
