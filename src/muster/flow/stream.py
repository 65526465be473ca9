"""Streams: every message, in order, and bounded.

    Outlet.put -> number, kept until acknowledged -> Inlet -> taken -> ack -> room for another

A full window makes the writer wait. The writer asks for an acknowledgement four times per window,
not for each message, so that it never waits for one that it did not ask for. A replaced reader
receives again all messages that its predecessor did not acknowledge; those that the predecessor
acknowledged are lost with it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.engines.base import Delivery, Parcel
from muster.flow import heads
from muster.flow.dispatcher import Dispatcher
from muster.flow.registry import WireError
from muster.flow.wire import Packed, unpack


class Outlet:
    """The sending side of a stream, from this node to one other.

    Args:
        dispatcher: Sends the messages.
        stream: Name of the stream.
        to: Id of the node that reads it.
        window: Maximum number of unacknowledged messages.
        window_bytes: Maximum number of unacknowledged bytes; a single message may be larger.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        stream: str,
        to: int,
        window: int,
        window_bytes: int = 64 << 20,
    ) -> None:
        self._dispatcher = dispatcher
        self._stream = stream
        self._to = to
        self._window = window
        self._window_bytes = window_bytes
        self._unasked = 0
        self._unasked_bytes = 0
        self._changed = threading.Condition()
        self._unacked: deque[tuple[int, bytes, Parcel]] = deque()
        self._bytes = 0
        self._number = 0
        self._ready = False
        self._closed = False
        dispatcher.add_outlet(self)

    @property
    def name(self) -> tuple[str, int]:
        """The name of the stream, and the id of its reader."""
        return self._stream, self._to

    def put(
        self,
        packed: Packed,
        timeout: float | None = None,
        wait: bool = True,
        given_up: Callable[[], bool] = lambda: False,
        ask: bool = False,
    ) -> bool:
        """Send a message; False if no one will read it, or `given_up` returns True.

        Args:
            packed: The message.
            timeout: Maximum wait for room, in seconds.
            wait: Whether to wait for room at all; if not, the window may be exceeded.
            given_up: Called while waiting, after each change.
            ask: Ask for an acknowledgement as soon as this and all earlier ones are done.

        Raises:
            TimeoutError: There was no room in time.
        """
        if wait and not self._has_room() and not self._wait_for_room(timeout, given_up):
            return False
        with self._changed:
            if self._closed:
                return False
            self._number += 1
            parcel = self._dispatcher.parcel(packed)
            self._unasked += 1
            self._unasked_bytes += parcel.nbytes
            if 4 * self._unasked >= self._window or 4 * self._unasked_bytes >= self._window_bytes:
                ask = True
            if ask:
                self._unasked = self._unasked_bytes = 0
            head = heads.encode(heads.StreamMessage(self._stream, self._number, ask))
            self._unacked.append((self._number, head, parcel))
            self._bytes += parcel.nbytes
            if self._ready:
                self._dispatcher.send(self._to, head, parcel)
            return True

    @property
    def is_empty(self) -> bool:
        """Whether all messages are acknowledged."""
        return not self._unacked

    def wait_until_empty(self, deadline: float) -> bool:
        """Wait until all is acknowledged or the reader has ended; False at the deadline."""
        left = max(0.0, deadline - time.monotonic())
        return self._dispatcher.wait_for(
            self._changed, lambda: not self._unacked or self._closed, left
        )

    def wait_until_sent(self, deadline: float) -> None:
        """Wait until the reader is linked or has ended: then all is sent, or need not be."""
        left = max(0.0, deadline - time.monotonic())
        self._dispatcher.wait_for(
            self._changed, lambda: self._ready or self._closed or not self._unacked, left
        )

    def acknowledged(self, number: int) -> None:
        """Drop all messages up to this one: the reader has processed them."""
        with self._changed:
            while self._unacked and self._unacked[0][0] <= number:
                _, _, parcel = self._unacked.popleft()
                self._bytes -= parcel.nbytes
                parcel.drop()
            self._changed.notify_all()

    def linked(self) -> None:
        """Send all unacknowledged messages to a reader that is linked, the first time or again."""
        with self._changed:
            self._closed = False
            for _, head, parcel in self._unacked:
                self._dispatcher.send(self._to, head, parcel)
            self._ready = True
            self._changed.notify_all()

    def lost(self) -> None:
        """Record that the reader cannot be reached."""
        with self._changed:
            self._ready = False

    def close(self) -> None:
        """Drop all messages: no one will read them."""
        with self._changed:
            self._closed = True
            while self._unacked:
                self._unacked.popleft()[2].drop()
            self._bytes = 0
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake waiting writers, which call `given_up` again."""
        with self._changed:
            self._changed.notify_all()

    def _has_room(self) -> bool:
        if not self._unacked or self._closed:
            return True
        return len(self._unacked) < self._window and self._bytes < self._window_bytes

    def _wait_for_room(self, timeout: float | None, given_up: Callable[[], bool]) -> bool:
        if not self._dispatcher.wait_for(
            self._changed, lambda: self._has_room() or given_up(), timeout
        ):
            raise TimeoutError(f"{self._stream!r} had no room within {timeout} s")
        return self._has_room()


@dataclass(frozen=True, slots=True)
class Item:
    """A received message that is not acknowledged yet."""

    sender: int
    incarnation: int
    """The sender's incarnation."""
    number: int
    wants_ack: bool
    delivery: Delivery

    def value(self) -> Any:
        """Return the value, and release its memory. Call this only once."""
        value = unpack(self.delivery.tree, self.delivery.buffers)
        self.delivery.release()
        return value


class Inlet:
    """The receiving side of a stream, on this node, from all others.

    Args:
        dispatcher: Receives the messages.
        stream: Name of the stream.
        accept: Called for each message, in order for each sender, on the link thread.
    """

    def __init__(self, dispatcher: Dispatcher, stream: str, accept: Callable[[Item], None]) -> None:
        self.stream = stream
        self._dispatcher = dispatcher
        self._accept = accept
        self._expected: dict[int, int] = {}
        dispatcher.add_inlet(self)

    def received(self, number: int, wants_ack: bool, delivery: Delivery) -> None:
        """Accept a message."""
        sender = delivery.sender
        expected = self._expected.get(sender, number)
        if number < expected:  # sent again, because its acknowledgement was lost
            delivery.release()
            self._acknowledge(sender, expected - 1, self._dispatcher.incarnation_of(sender))
            return
        if number > expected:
            raise WireError(
                f"message {number} of stream {self.stream!r} arrived when {expected} was expected",
                f"a message of node {sender} is missing",
                "report it",
            )
        self._expected[sender] = number + 1
        incarnation = self._dispatcher.incarnation_of(sender)
        self._accept(Item(sender, incarnation, number, wants_ack, delivery))

    def acknowledge(self, item: Item) -> None:
        """Acknowledge this message, and all before it."""
        if item.wants_ack:
            self._acknowledge(item.sender, item.number, item.incarnation)

    def forget(self, sender: int) -> None:
        """Expect new numbers from a sender that was replaced."""
        self._expected.pop(sender, None)

    def close(self) -> None:
        """Stop receiving; messages that arrive from now on are acknowledged and dropped."""
        self._accept = self._discard

    def _discard(self, item: Item) -> None:
        item.delivery.release()
        self.acknowledge(item)

    def _acknowledge(self, sender: int, number: int, incarnation: int) -> None:
        head = heads.encode(heads.StreamAck(self.stream, number, incarnation))
        self._dispatcher.send(sender, head)
