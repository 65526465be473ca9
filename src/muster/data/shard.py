"""Replay on separate nodes: the actors' side, and a shard. The learner is in `sharded_replay.py`.

    ShardFeed (actors) ──fragments, in turn──> ReplayShard ──offers, counts, batches──> learner
                                                    <──what to store, what to read, priorities──

A shard does not decide when to store a fragment. It offers fragments that arrived, and the learner
decides when to store them, because the learner counts the samples per insert of all shards
together. The shard holds fragments until then; when it holds enough, it reads no more, so the
senders wait.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from muster.data.block import StepBlock
from muster.data.checks import check_count
from muster.data.feed import Fragment
from muster.data.replay import ReplayBuffer
from muster.data.shard_state import ShardState
from muster.data.shard_talk import ShardOrder, ShardReport
from muster.data.shards import Turns
from muster.data.steps import FragmentSource
from muster.flow import Channel, Parcelled

UNDER_WAY = 32
"""Orders and reports that may be in transit; far more than the learner ever has open."""


def fragments_channel(name: str, shard: int, in_flight: int) -> Channel:
    """Return the channel that brings experience to a shard."""
    return Channel(f"replay.{name}.{shard}", shard, in_flight)


def orders_channel(name: str, shard: int, beside: Channel | None = None) -> Channel:
    """Return the channel that brings the learner's orders to a shard."""
    return Channel(f"replay.{name}.{shard}.orders", shard, UNDER_WAY, beside)


def reports_channel(name: str, learner: str | int) -> Channel:
    """Return the channel that brings the shards' reports to the learner."""
    return Channel(f"replay.{name}.reports", learner, UNDER_WAY)


class ShardFeed:
    """Sends experience to the shards in turn: none lost, none twice, bounded.

    Args:
        shards: Node ids.
        first: The first shard; different for each node that acts, to spread the load.
        turn: Transitions that one shard gets before the next one (`Turns`).
        in_flight: Fragments that this node may have sent to a shard and not seen read.
        name: Name of the replay.
    """

    def __init__(
        self,
        shards: Sequence[int],
        first: int = 0,
        turn: int = 1,
        in_flight: int = 2,
        name: str = "replay",
    ) -> None:
        self._turns = Turns(len(shards), first, turn)
        self._channels = [fragments_channel(name, shard, in_flight) for shard in shards]

    @property
    def waited(self) -> float:
        """Seconds that sending has waited for room so far."""
        return sum(channel.waited for channel in self._channels)

    def push(
        self,
        data: StepBlock,
        cur_collector_envstep: int | None = None,
        *,
        version: int = 0,
        note: Any = None,
    ) -> bool:
        """Send to the next shard, and wait while it has no room; like `ReplayBuffer.push`."""
        shard, number = self._turns.next(len(data))
        return self._channels[shard].put(Fragment(data, version, number, note))


class ReplayShard:
    """A part of replay, on this node.

    Args:
        make_buffer: Makes the buffer, empty.
        shard: Id of this node.
        generation: Incarnation of this node.
        learner: The node that draws from the shard.
        hold: Fragments that the shard may hold until the learner lets it store them.
        in_flight: As for `ShardFeed`.
        name: Name of the replay.
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
        self._state = ShardState(make_buffer, generation)
        self._hold = hold
        self._name = name
        self._fragments = fragments_channel(name, shard, in_flight)
        self._orders = orders_channel(name, shard, beside=self._fragments)
        self._reports = reports_channel(name, learner)
        self._held: deque[tuple[Fragment, FragmentSource]] = deque()
        self._session: int | None = None
        self._reports.put(ShardReport("hello"))

    def serve(self) -> bool:
        """Wait until there is work, and do it. False when the run is over."""
        others = (self._fragments,) if len(self._held) < self._hold else ()
        if not self._orders.wait_for_any(*others):
            return False
        while len(self._orders):
            order = self._orders.get_with_source()
            assert order is not None
            self._handle(order)
        while len(self._held) < self._hold and len(self._fragments):
            parcel = self._fragments.get_with_source()
            assert parcel is not None
            source = FragmentSource((parcel.sender, parcel.incarnation), parcel.value.number)
            self._held.append((parcel.value, source))
            self._offer(parcel.value)
        return True

    def _handle(self, parcelled: Parcelled) -> None:
        order: ShardOrder = parcelled.value
        state = self._state
        if order.verb == "hello":
            self._reports.put(ShardReport("hello"))
        elif order.generation != state.generation:
            return  # for a previous incarnation
        elif order.verb == "begin":
            self._session = parcelled.incarnation
            state.begin(order.given)
            self._report("ready")
            for fragment, _ in self._held:
                self._offer(fragment)
        elif parcelled.incarnation == self._session:
            if order.learned is not None:
                state.learn(order.generation, order.learned)
            self._do(order)

    def _do(self, order: ShardOrder) -> None:
        if order.verb == "insert":
            fragment, source = self._held.popleft()
            self._state.store(fragment.data, fragment.version, source)
            self._report("inserted", (len(fragment.data), fragment.version, fragment.note))
        elif order.verb == "draw":
            number, where = order.given
            drawn = self._state.draw(where)
            self._report("drawn", (number, drawn.batch, drawn.chance))
        else:
            self._report("saved", self._state.save())

    def _offer(self, fragment: Fragment) -> None:
        if self._session is not None:
            self._report("offer", len(fragment.data))

    def _report(self, verb: str, given: Any = None) -> None:
        assert self._session is not None
        self._reports.put(ShardReport(verb, self._session, self._state.contents(), given))
