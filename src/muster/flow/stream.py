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
from muster.flow.mail import Mail
from muster.flow.registry import WireError
from muster.flow.wire import Packed, unpack


class Outlet:
    """One end of a stream: what this node sends to one other.

    Args:
        mail: Sends it.
        stream: Name of the stream.
        to: Who reads it.
        window: Messages that may be under way.
        window_bytes: Bytes that may be; one message may be larger.
    """

    def __init__(
        self, mail: Mail, stream: str, to: int, window: int, window_bytes: int = 64 << 20
    ) -> None:
        self._mail = mail
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
        mail.add_outlet(self)

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
        """Send a message; False if nobody will read it, or if it was given up.

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
            parcel = self._mail.parcel(packed)
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
                self._mail.send(self._to, head, parcel)
            return True

    @property
    def is_empty(self) -> bool:
        """Whether all that was sent is known to be done with."""
        return not self._unacked

    def wait_until_empty(self, deadline: float) -> bool:
        """Wait until all was acknowledged or nobody is left to do it; False if it is too late."""
        left = max(0.0, deadline - time.monotonic())
        return self._mail.wait_for(self._changed, lambda: not self._unacked or self._closed, left)

    def wait_until_sent(self, deadline: float) -> None:
        """Wait until the reader is there or gone for good: then all was sent, or need not be."""
        left = max(0.0, deadline - time.monotonic())
        self._mail.wait_for(
            self._changed, lambda: self._ready or self._closed or not self._unacked, left
        )

    def acknowledged(self, number: int) -> None:
        """Hear that all messages up to this one are done with."""
        with self._changed:
            while self._unacked and self._unacked[0][0] <= number:
                _, _, parcel = self._unacked.popleft()
                self._bytes -= parcel.nbytes
                parcel.drop()
            self._changed.notify_all()

    def linked(self) -> None:
        """Hear that the reader is there: send what it has to know."""
        with self._changed:
            for _, head, parcel in self._unacked:
                self._mail.send(self._to, head, parcel)
            self._ready = True
            self._changed.notify_all()

    def lost(self) -> None:
        """Hear that the reader is away."""
        with self._changed:
            self._ready = False

    def close(self) -> None:
        """Give up what nobody will read."""
        with self._changed:
            self._closed = True
            while self._unacked:
                self._unacked.popleft()[2].drop()
            self._bytes = 0
            self._changed.notify_all()

    def wake(self) -> None:
        """Have everybody who waits look again whether it is given up."""
        with self._changed:
            self._changed.notify_all()

    def _has_room(self) -> bool:
        if not self._unacked or self._closed:
            return True
        return len(self._unacked) < self._window and self._bytes < self._window_bytes

    def _wait_for_room(self, timeout: float | None, given_up: Callable[[], bool]) -> bool:
        if not self._mail.wait_for(self._changed, lambda: self._has_room() or given_up(), timeout):
            raise TimeoutError(f"{self._stream!r} had no room within {timeout} s")
        return self._has_room()


@dataclass(frozen=True, slots=True)
class Item:
    """A message that came in and was not yet acknowledged."""

    sender: int
    incarnation: int
    """Of the sender."""
    number: int
    wants_ack: bool
    delivery: Delivery

    def value(self) -> Any:
        """Return what was sent, and give its memory back. Only once."""
        value = unpack(self.delivery.tree, self.delivery.buffers)
        self.delivery.release()
        return value


class Inlet:
    """The other end of a stream: what this node gets from all others.

    Args:
        mail: Receives it.
        stream: Name of the stream.
        accept: Called for each message, in order for each sender, on the post thread.
    """

    def __init__(self, mail: Mail, stream: str, accept: Callable[[Item], None]) -> None:
        self.stream = stream
        self._mail = mail
        self._accept = accept
        self._expected: dict[int, int] = {}
        mail.add_inlet(self)

    def received(self, number: int, wants_ack: bool, delivery: Delivery) -> None:
        """Take a message."""
        sender = delivery.sender
        expected = self._expected.get(sender, number)
        if number < expected:  # it was sent again, because the answer to it got lost
            delivery.release()
            self._acknowledge(sender, expected - 1, self._mail.incarnation_of(sender))
            return
        if number > expected:
            raise WireError(
                f"message {number} of stream {self.stream!r} came where {expected} was due",
                f"a message of node {sender} is missing",
                "report it",
            )
        self._expected[sender] = number + 1
        incarnation = self._mail.incarnation_of(sender)
        self._accept(Item(sender, incarnation, number, wants_ack, delivery))

    def acknowledge(self, item: Item) -> None:
        """Say that this message, and all before it, are done with."""
        if item.wants_ack:
            self._acknowledge(item.sender, item.number, item.incarnation)

    def forget(self, sender: int) -> None:
        """Hear that this sender was replaced, and numbers anew."""
        self._expected.pop(sender, None)

    def close(self) -> None:
        """Stop receiving; what comes from now on is acknowledged and dropped."""
        self._accept = self._discard

    def _discard(self, item: Item) -> None:
        item.delivery.release()
        self.acknowledge(item)

    def _acknowledge(self, sender: int, number: int, incarnation: int) -> None:
        head = heads.encode(heads.StreamAck(self.stream, number, incarnation))
        self._mail.send(sender, head)
