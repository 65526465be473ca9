"""`ShardState`: the contents and decisions of a shard of replay, for any transport.

    store(fragment, source) -> once for each number of a source     draw(where) -> batch, chance
    learn(errors)           -> of this generation only              begin, save -> its content

Two transports use it: `data/shard.py` (channels between nodes) and `muster.actors` (a Ray actor).
"""

import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.data.block import StepBlock
from muster.data.replay import ReplayBuffer
from muster.data.steps import FragmentSource
from muster.flow import register_dataclass

_REMEMBERED = 256
"""Numbers of stored fragments remembered per source: more than can be in transit."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Contents:
    """The contents of a shard."""

    inserted: int = 0
    """Transitions ever inserted, in its own numbers."""
    stored: int = 0
    mass: float = 0.0
    largest: float = 0.0
    """The largest p^alpha so far."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Learned:
    """TD errors, for new priorities."""

    index: NDArray[np.int64]
    """In the shard's own numbers."""
    td_error: NDArray[np.float64]
    largest: float
    """The largest p^alpha of all shards, so that new items are equally important in each."""


class Answer(NamedTuple):
    """The result of each call of a shard."""

    generation: int
    """Generation of the shard: the ids of an earlier one are meaningless in this one."""
    contents: Contents
    batch: Any = None
    """The drawn rows, with the shard's own numbers; None if the shard is empty."""
    chance: NDArray[np.float64] | None = None
    """[B] Probability of each row in this shard; None if replay is uniform."""


class ShardState:
    """A part of replay.

    Args:
        make_buffer: Makes the buffer, empty.
        generation: Higher for each incarnation of the shard; the time by default.
    """

    def __init__(
        self, make_buffer: Callable[[], ReplayBuffer], generation: int | None = None
    ) -> None:
        self.generation = time.time_ns() if generation is None else generation
        self._make_buffer = make_buffer
        self.begin(None)

    def begin(self, state: dict[str, Any] | None) -> None:
        """Begin empty, or with a saved state."""
        self._seen: dict[Hashable, deque[int]] = {}
        self._buffer = self._make_buffer()
        if state is not None:
            self._buffer.load_state_dict(state)
            self._buffer.cut_episodes()

    def store(self, data: StepBlock, version: int, source: FragmentSource) -> Answer:
        """Store a fragment, exactly once however often it arrives."""
        seen = self._seen.setdefault(source.name, deque(maxlen=_REMEMBERED))
        if source.number not in seen:
            self._buffer.push(data, version=version, source=source)
            seen.append(source.number)
        return self.look()

    def draw(self, where: NDArray[np.float64]) -> Answer:
        """Read the items at these fractions, in [0, 1), of the shard's mass."""
        buffer = self._buffer
        if not len(buffer):
            return self.look()
        batch = buffer.draw_at(where)
        chance = buffer.chance(batch.index) if buffer.prioritized else None
        return Answer(self.generation, self.contents(), batch, chance)

    def learn(self, generation: int, learned: Learned) -> None:
        """Set priorities, unless the errors are of an earlier generation."""
        if generation == self.generation:
            self._buffer.expect(learned.largest)
            self._buffer.update_priorities(learned.index, learned.td_error)

    def look(self) -> Answer:
        """Return the generation and contents of the shard."""
        return Answer(self.generation, self.contents())

    def contents(self) -> Contents:
        """Return the contents of the shard."""
        buffer = self._buffer
        return Contents(buffer.inserted, len(buffer), buffer.mass, buffer.largest)

    def save(self) -> dict[str, Any]:
        """Return everything that is stored."""
        return self._buffer.state_dict()
