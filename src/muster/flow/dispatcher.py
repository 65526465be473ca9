"""`Dispatcher`: routes every message of this node to its board or stream.

It runs on the transport's thread. A message for a board or stream that this node has not opened yet
waits here; such messages are few, because they are not acknowledged.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from muster.engines.base import Delivery, Parcel, Transport
from muster.errors import TaskError
from muster.flow import heads
from muster.flow.registry import WireError
from muster.flow.wire import Packed

if TYPE_CHECKING:
    from muster.flow.board import Publisher, Subscriber
    from muster.flow.stream import Inlet, Outlet

_log = logging.getLogger("muster")


class Dispatcher:
    """All messages that this node sends and receives."""

    def __init__(self, transport: Transport) -> None:
        self.place = transport.place
        self._transport = transport
        # Reentrant: a newly opened board or stream takes its waiting messages, and may answer.
        self._lock = threading.RLock()
        self._publishers: dict[str, Publisher] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._outlets: dict[tuple[str, int], Outlet] = {}
        self._inlets: dict[str, Inlet] = {}
        self._early: dict[str, list[tuple[heads.Head, Delivery]]] = defaultdict(list)
        self._linked: dict[int, int] = {}
        self._gone: set[int] = set()
        """Nodes that no one waits for."""
        self._away: set[int] = set()
        """Elastic nodes that are absent: they have not joined yet, or have left."""
        self._ended: set[int] = set()
        """Nodes that have ended for good."""

    # ---- for boards and streams

    def parcel(self, packed: Packed) -> Parcel:
        """Copy a message for sending."""
        return self._transport.parcel(packed.tree, packed.buffers)

    def send(self, to: int, head: bytes, parcel: Parcel | None = None) -> None:
        """Send without waiting, if that node is linked."""
        self._transport.send(to, head, parcel)

    @property
    def is_alone(self) -> bool:
        """Whether all other nodes have ended, not counting elastic nodes that are absent.

        While all other nodes are absent and none has ended, they may still join: not alone.
        """
        others = set(self.place.linked)
        return self._gone >= others and (not others or bool(self._ended & others))

    def incarnation_of(self, node: int) -> int:
        """Return the linked incarnation of a node, or the last one that was linked."""
        return self._linked.get(node, 0)

    def wait_for(
        self, changed: threading.Condition, until: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Wait until a condition holds that a message makes true; False after `timeout` seconds.

        The caller must not hold `changed`. It has to check the condition again afterwards, as
        another thread may have been faster.
        """
        return self._transport.wait_for(changed, until, timeout)

    def add_publisher(self, publisher: "Publisher") -> None:
        """Add the writing side of a board; readers receive its values when they are linked."""
        with self._lock:
            _refuse_second(publisher.board, self._publishers, publisher.board)
            self._publishers[publisher.board] = publisher
            for node in self._gone:
                publisher.gone(node)
            for node in self._linked.keys() - self._gone:
                publisher.linked(node)

    def add_subscriber(self, subscriber: "Subscriber") -> None:
        """Add the reading side of a board."""
        with self._lock:
            _refuse_second(subscriber.board, self._subscribers, subscriber.board)
            self._subscribers[subscriber.board] = subscriber
            self._catch_up(f"board {subscriber.board}")

    def add_outlet(self, outlet: "Outlet") -> None:
        """Add the sending side of a stream; it sends once its reader is linked."""
        with self._lock:
            _refuse_second(outlet.name, self._outlets, outlet.name[0])
            self._outlets[outlet.name] = outlet
            node = outlet.name[1]
            if node in self._gone:
                outlet.close()
            elif node in self._linked:
                outlet.linked()

    def add_inlet(self, inlet: "Inlet") -> None:
        """Add the receiving side of a stream."""
        with self._lock:
            _refuse_second(inlet.stream, self._inlets, inlet.stream)
            self._inlets[inlet.stream] = inlet
            self._catch_up(f"stream {inlet.stream}")

    def wake_writers(self) -> None:
        """Wake all writers that wait for room."""
        with self._lock:
            outlets = list(self._outlets.values())
        for outlet in outlets:
            outlet.wake()

    def flush(self, seconds: float) -> None:
        """Wait until all messages are sent, including those to nodes that are still starting."""
        deadline = time.monotonic() + seconds
        for publisher in list(self._publishers.values()):
            publisher.wait_until_sent(deadline)
        for outlet in list(self._outlets.values()):
            outlet.wait_until_sent(deadline)

    def announce_end(self) -> None:
        """Tell the other nodes that this node ends."""
        head = heads.encode(heads.Bye())
        for node in list(self._linked):
            self.send(node, head)

    # ---- from the transport

    def received(self, delivery: Delivery) -> None:
        """Route a message to its board or stream."""
        try:
            with self._lock:
                self._sort(heads.decode(delivery.head), delivery)
        except WireError as error:
            delivery.release()
            _log.warning("a message of node %d was dropped: %s", delivery.sender, error)

    def linked(self, peer: int, incarnation: int) -> None:
        """Record that a node is linked, for the first time or as a replacement."""
        with self._lock:
            if incarnation > self._linked.get(peer, -1):
                for inlet in self._inlets.values():
                    inlet.forget(peer)
                for waiting in self._early.values():
                    waiting[:] = [each for each in waiting if each[1].sender != peer]
            self._linked[peer] = incarnation
            self._gone.discard(peer)
            self._ended.discard(peer)
            for publisher in self._publishers.values():
                publisher.linked(peer)
            for (_, node), outlet in self._outlets.items():
                if node == peer:
                    outlet.linked()

    def lost(self, peer: int) -> None:
        """Record that a node cannot be reached."""
        with self._lock:
            for publisher in self._publishers.values():
                publisher.lost(peer)
            for (_, node), outlet in self._outlets.items():
                if node == peer:
                    outlet.lost()

    def is_gone(self, peer: int) -> bool:
        """Whether a node has ended or is absent, so that no one waits for it."""
        return peer in self._gone

    def is_away(self, peer: int) -> bool:
        """Whether an elastic node is absent: it has not joined yet, or has left."""
        return peer in self._away

    def joined(self, peer: int) -> None:
        """Record that an elastic node has joined."""
        with self._lock:
            self._away.discard(peer)

    def gone(self, peer: int, incarnation: int | None = None) -> None:
        """Stop waiting for a node that has ended or left.

        Args:
            peer: Id of the node.
            incarnation: For an elastic node that left, its last incarnation; a later one may be
                linked already. None for a node that has ended.
        """
        with self._lock:
            if incarnation is not None:
                if self._linked.get(peer, -1) > incarnation:
                    return
                self._away.add(peer)
            else:
                self._ended.add(peer)
            self._gone.add(peer)
            for publisher in self._publishers.values():
                publisher.gone(peer)
            for (_, node), outlet in self._outlets.items():
                if node == peer:
                    outlet.close()

    def _catch_up(self, what: str) -> None:
        for head, delivery in self._early.pop(what, []):
            self._sort(head, delivery)

    def _sort(self, head: heads.Head, delivery: Delivery) -> None:
        match head:
            case heads.BoardMessage(board, number):
                subscriber = self._subscribers.get(board)
                if subscriber is None:
                    self._early[f"board {board}"].append((head, delivery))
                else:
                    subscriber.received(number, delivery)
            case heads.StreamMessage(stream, number, wants_ack):
                inlet = self._inlets.get(stream)
                if inlet is None:
                    self._early[f"stream {stream}"].append((head, delivery))
                else:
                    inlet.received(number, wants_ack, delivery)
            case heads.BoardAck(board, _, incarnation):
                publisher = self._publishers.get(board)
                if publisher is not None and incarnation == self.place.incarnation:
                    publisher.acknowledged(delivery.sender)
            case heads.StreamAck(stream, number, incarnation):
                outlet = self._outlets.get((stream, delivery.sender))
                if outlet is not None and incarnation == self.place.incarnation:
                    outlet.acknowledged(number)
            case heads.Bye():
                self.gone(delivery.sender)


def _refuse_second(key: object, opened: Container[object], name: str) -> None:
    """Raise TaskError if a name is opened twice on a node: each would take the other's messages."""
    if key in opened:
        raise TaskError(
            f"{name!r} is opened twice on this node",
            "messages to one would arrive at the other",
            "a separate name for each, such as name='second'",
        )
