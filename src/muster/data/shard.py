"""Replay on nodes of its own: those who act, and a shard. The learner is in `sharded_replay.py`.

    ShardFeed (actors) ──fragments, in turn──> ReplayShard ──offers, counts, batches──> learner
                                                    <──what to store, what to read, priorities──

A shard stores nothing by itself: it offers what came, and the learner says when, because it counts
the samples per insert of all shards together. What it was not told to store it holds; and when it
holds enough it reads no more, so those who send wait.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from muster.data.batch import Transitions, VersionedBatch
from muster.data.checks import check_count
from muster.data.feed import Fragment
from muster.data.replay import ReplayBuffer
from muster.data.shard_talk import (
    Announce,
    Begin,
    Contents,
    Draw,
    Drawn,
    Hello,
    Insert,
    Inserted,
    Learned,
    Offer,
    Order,
    Ready,
    Report,
    Save,
    Saved,
)
from muster.flow import Channel, Parcelled

UNDER_WAY = 32
"""Orders and reports that may be on their way; far more than the learner ever has open."""


def fragments_channel(name: str, shard: int, in_flight: int) -> Channel:
    """Return how experience comes to a shard."""
    return Channel(f"replay.{name}.{shard}", shard, in_flight)


def orders_channel(name: str, shard: int, beside: Channel | None = None) -> Channel:
    """Return how the learner's orders come to a shard."""
    return Channel(f"replay.{name}.{shard}.orders", shard, UNDER_WAY, beside)


def reports_channel(name: str, learner: str | int) -> Channel:
    """Return how the shards' reports come to the learner."""
    return Channel(f"replay.{name}.reports", learner, UNDER_WAY)


class ShardFeed:
    """Sends experience to the shards in turn: none lost, none twice, bounded.

    Args:
        shards: Node ids.
        first: Whose turn it is first; different for each node that acts, so that they spread.
        in_flight: Fragments that this node may have sent to a shard and not seen read.
        name: Of the replay.
    """

    def __init__(
        self, shards: Sequence[int], first: int = 0, in_flight: int = 2, name: str = "replay"
    ) -> None:
        check_count("number of shards", len(shards), 1)
        self._channels = [fragments_channel(name, shard, in_flight) for shard in shards]
        self._next = first % len(self._channels)

    @property
    def waited(self) -> float:
        """Seconds that sending has waited for room so far."""
        return sum(channel.waited for channel in self._channels)

    def push(
        self,
        data: Transitions,
        cur_collector_envstep: int | None = None,
        *,
        version: int = 0,
        note: Any = None,
    ) -> bool:
        """Send to the next shard, and wait while it has no room; as `ReplayBuffer.push` does."""
        channel = self._channels[self._next]
        self._next = (self._next + 1) % len(self._channels)
        return channel.put(Fragment(data, version, note))


class ReplayShard:
    """A part of replay, on the node where this is made.

    Args:
        make_buffer: Makes it, empty.
        shard: This node's id.
        generation: This process's incarnation.
        learner: Who draws from it.
        hold: Fragments that it has read and may hold until it is told to store them.
        in_flight: As for `ShardFeed`.
        name: Of the replay.
    """

    def __init__(
        self,
        make_buffer: Callable[[], ReplayBuffer],
        shard: int,
        generation: int = 0,
        learner: str | int = "role.learner",
        hold: int = 2,
        in_flight: int = 2,
        name: str = "replay",
    ) -> None:
        check_count("hold", hold, 1)
        self._make_buffer = make_buffer
        self._generation = generation
        self._hold = hold
        self._name = name
        self._fragments = fragments_channel(name, shard, in_flight)
        self._orders = orders_channel(name, shard, beside=self._fragments)
        self._reports = reports_channel(name, learner)
        self._held: deque[Fragment] = deque()
        self._session: int | None = None
        self._begin(None)
        self._reports.put(Hello(name))

    def serve(self) -> bool:
        """Wait until there is something to do, and do it. False when the run is over."""
        others = (self._fragments,) if len(self._held) < self._hold else ()
        if not self._orders.wait_for_any(*others):
            return False
        while len(self._orders):
            order = self._orders.get_with_source()
            assert order is not None
            self._handle(order)
        while len(self._held) < self._hold and len(self._fragments):
            fragment = self._fragments.get()
            self._held.append(fragment)
            self._offer(fragment)
        return True

    def _handle(self, parcelled: Parcelled) -> None:
        order: Announce | Order = parcelled.value
        if isinstance(order, Announce):
            self._reports.put(Hello(self._name))
        elif order.generation != self._generation:
            return  # it was for a process that has died
        elif isinstance(order, Begin):
            self._session = parcelled.incarnation
            self._begin(order.state)
            self._report(Ready(self._session, self._contents()))
            for fragment in self._held:
                self._offer(fragment)
        elif parcelled.incarnation == self._session:
            if order.learned is not None:
                self._learn(order.learned)
            self._report(self._do(order, self._session))

    def _do(self, order: Insert | Draw | Save, session: int) -> Report:
        if isinstance(order, Insert):
            fragment = self._held.popleft()
            self._insert(fragment)
            size = len(fragment.data)
            return Inserted(session, self._contents(), size, fragment.version, fragment.note)
        if isinstance(order, Draw):
            batch = self._buffer.draw_at(order.where)
            chance = self._buffer.chance(batch.index) if self._buffer.prioritized else None
            versions = self._versions[self._rows(batch.index)]
            drawn = VersionedBatch.of(batch, versions)
            return Drawn(session, self._contents(), order.number, drawn, chance)
        return Saved(session, self._buffer.state_dict())

    def _begin(self, state: dict[str, Any] | None) -> None:
        self._buffer = self._make_buffer()
        self._versions = np.zeros(self._buffer.capacity // self._buffer.num_envs, np.int64)
        if state is not None:
            self._buffer.load_state_dict(state)
            self._buffer.cut_episodes()

    def _insert(self, fragment: Fragment) -> None:
        first = self._buffer.inserted
        self._buffer.push(fragment.data)
        # The next one may be another node's: nothing continues this one.
        self._buffer.cut_episodes()
        added = np.arange(first, self._buffer.inserted, self._buffer.num_envs)
        self._versions[self._rows(added)] = fragment.version

    def _rows(self, index: Any) -> Any:
        return index // self._buffer.num_envs % len(self._versions)

    def _learn(self, learned: Learned) -> None:
        self._buffer.expect(learned.largest)
        self._buffer.update_priorities(learned.index, learned.td_error)

    def _contents(self) -> Contents:
        buffer = self._buffer
        return Contents(buffer.inserted, len(buffer), buffer.mass, buffer.largest)

    def _offer(self, fragment: Fragment) -> None:
        if self._session is not None:
            self._report(Offer(self._session, len(fragment.data)))

    def _report(self, report: Report) -> None:
        self._reports.put(report)
