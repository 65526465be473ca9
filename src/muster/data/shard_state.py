"""`ShardState`: what a shard of replay is and decides, whoever carries calls to it.

    store(fragment, source) -> once for each number of a source     draw(where) -> batch, chance
    learn(errors)           -> of this generation only              begin, save -> its content

Two carriers use it: `data/shard.py` (channels between nodes) and `muster.actors` (a Ray actor).
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
"""Numbers of stored fragments that are known of each source: more than can be on the way."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Contents:
    """What a shard holds."""

    inserted: int = 0
    """Transitions ever, in its own numbers."""
    stored: int = 0
    mass: float = 0.0
    largest: float = 0.0
    """The largest p^alpha that it has known."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Learned:
    """How large errors were: new priorities."""

    index: NDArray[np.int64]
    """In the shard's own numbers."""
    td_error: NDArray[np.float64]
    largest: float
    """The largest p^alpha of all shards, so that what is new is as important in each of them."""


class Answer(NamedTuple):
    """What a shard says after each call."""

    generation: int
    """Which life of the shard: the ids of an earlier one mean nothing in this."""
    contents: Contents
    batch: Any = None
    """What was drawn, with the shard's own numbers; None if there is nothing."""
    chance: NDArray[np.float64] | None = None
    """[B] How probable each row was in this shard; None where replay is uniform."""


class ShardState:
    """A part of replay.

    Args:
        make_buffer: Makes the buffer, empty.
        generation: Higher for each life of the shard; without it, the time.
    """

    def __init__(
        self, make_buffer: Callable[[], ReplayBuffer], generation: int | None = None
    ) -> None:
        self.generation = time.time_ns() if generation is None else generation
        self._make_buffer = make_buffer
        self.begin(None)

    def begin(self, state: dict[str, Any] | None) -> None:
        """Be empty, or as `state` says."""
        self._seen: dict[Hashable, deque[int]] = {}
        self._buffer = self._make_buffer()
        if state is not None:
            self._buffer.load_state_dict(state)
            self._buffer.cut_episodes()

    def store(self, data: StepBlock, version: int, source: FragmentSource) -> Answer:
        """Keep a fragment, once however often it comes."""
        seen = self._seen.setdefault(source.name, deque(maxlen=_REMEMBERED))
        if source.number not in seen:
            self._buffer.push(data, version=version, source=source)
            seen.append(source.number)
        return self.look()

    def draw(self, where: NDArray[np.float64]) -> Answer:
        """Read what lies at these parts, in [0, 1), of the shard's mass."""
        buffer = self._buffer
        if not len(buffer):
            return self.look()
        batch = buffer.draw_at(where)
        chance = buffer.chance(batch.index) if buffer.prioritized else None
        return Answer(self.generation, self.contents(), batch, chance)

    def learn(self, generation: int, learned: Learned) -> None:
        """Set priorities, unless they are of an earlier life."""
        if generation == self.generation:
            self._buffer.expect(learned.largest)
            self._buffer.update_priorities(learned.index, learned.td_error)

    def look(self) -> Answer:
        """Return what the shard holds."""
        return Answer(self.generation, self.contents())

    def contents(self) -> Contents:
        """Return what the shard holds."""
        buffer = self._buffer
        return Contents(buffer.inserted, len(buffer), buffer.mass, buffer.largest)

    def save(self) -> dict[str, Any]:
        """Return all that is stored."""
        return self._buffer.state_dict()
