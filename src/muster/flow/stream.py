"""Streams: all of it, in order, and bounded.

    Outlet.put -> number, kept until acknowledged -> Inlet -> taken -> ack -> room for another

A full window makes the writer wait. It asks for an acknowledgement four times in a window and not
each time, so that it never waits for one that it did not ask for. A reader that was replaced gets
again all that its predecessor did not acknowledge; what it did acknowledge went with it.
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
        dispatcher: Sends it.
        stream: Name of the stream.
        to: Who reads it.
        window: Messages that may be under way.
        window_bytes: Bytes that may be; one message may be larger.
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
        """The stream, and who reads it."""
        return self._stream, self._to

    def put(
        self,
        packed: Packed,
        timeout: float | None = None,
        wait: bool = True,
        given_up: Callable[[], bool] = lambda: False,
        ask: bool = False,
    ) -> bool:
        """Send a message; False if nobody will read it, or `given_up` says so.

        Args:
            packed: The message.
            timeout: Seconds to wait for room at most.
            wait: Whether to wait for room at all; without it the window is exceeded.
            given_up: Asked while waiting, each time something changed.
            ask: Have it acknowledged, and all before it, as soon as it is done with.

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
        """Whether all that was sent is acknowledged."""
        return not self._unacked

    def wait_until_empty(self, deadline: float) -> bool:
        """Wait until all is acknowledged or the reader is gone; False if the time is up."""
        left = max(0.0, deadline - time.monotonic())
        return self._dispatcher.wait_for(
            self._changed, lambda: not self._unacked or self._closed, left
        )

    def wait_until_sent(self, deadline: float) -> None:
        """Wait until the reader is linked or gone for good: all is sent then, or need not be."""
        left = max(0.0, deadline - time.monotonic())
        self._dispatcher.wait_for(
            self._changed, lambda: self._ready or self._closed or not self._unacked, left
        )

    def acknowledged(self, number: int) -> None:
        """All messages up to this one are done with."""
        with self._changed:
            while self._unacked and self._unacked[0][0] <= number:
                _, _, parcel = self._unacked.popleft()
                self._bytes -= parcel.nbytes
                parcel.drop()
            self._changed.notify_all()

    def linked(self) -> None:
        """The reader is there, for the first time or again: send what it has to know."""
        with self._changed:
            self._closed = False
            for _, head, parcel in self._unacked:
                self._dispatcher.send(self._to, head, parcel)
            self._ready = True
            self._changed.notify_all()

    def lost(self) -> None:
        """The reader is away."""
        with self._changed:
            self._ready = False

    def close(self) -> None:
        """Drop what nobody will read."""
        with self._changed:
            self._closed = True
            while self._unacked:
                self._unacked.popleft()[2].drop()
            self._bytes = 0
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake waiting writers, which ask `given_up` again."""
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
    """Of the sender."""
    number: int
    wants_ack: bool
    delivery: Delivery

    def value(self) -> Any:
        """Return the value, and release its memory. Only once."""
        value = unpack(self.delivery.tree, self.delivery.buffers)
        self.delivery.release()
        return value


class Inlet:
    """The receiving side of a stream, on this node, from all others.

    Args:
        dispatcher: Receives it.
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
        """Take a message."""
        sender = delivery.sender
        expected = self._expected.get(sender, number)
        if number < expected:  # it was sent again, because the answer to it got lost
            delivery.release()
            self._acknowledge(sender, expected - 1, self._dispatcher.incarnation_of(sender))
            return
        if number > expected:
            raise WireError(
                f"message {number} of stream {self.stream!r} came where {expected} was due",
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
        """This sender was replaced, and numbers anew."""
        self._expected.pop(sender, None)

    def close(self) -> None:
        """Stop receiving; what comes from now on is acknowledged and dropped."""
        self._accept = self._discard

    def _discard(self, item: Item) -> None:
        item.delivery.release()
        self.acknowledge(item)

    def _acknowledge(self, sender: int, number: int, incarnation: int) -> None:
        head = heads.encode(heads.StreamAck(self.stream, number, incarnation))
        self._dispatcher.send(sender, head)
