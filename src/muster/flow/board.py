"""Boards: the newest value of every key, and nothing older.

    Publisher.publish({key: value}) -> one message -> a reader that keeps up receives it at once;
    a slow reader receives the newest values when it is ready, and never those that it missed

The publisher keeps the smallest set of messages that contains the newest value of every key. So its
memory does not depend on how slow a reader is, and a node that joins late receives just that set.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from muster.engines.base import Delivery, Parcel
from muster.flow import heads
from muster.flow.dispatcher import Dispatcher
from muster.flow.wire import Packed, unpack

_UNDER_WAY = 2
"""Unacknowledged messages per reader: the next one arrives while the reader reads one."""


class _Message:
    """A message that still contains the newest value of some keys."""

    __slots__ = ("keys", "number", "parcel")

    def __init__(self, number: int, keys: set[str], parcel: Parcel) -> None:
        self.number = number
        self.keys = keys
        self.parcel = parcel


class _BoardReader:
    """The state of one reader."""

    __slots__ = ("is_gone", "ready", "sent", "under_way")

    def __init__(self) -> None:
        self.is_gone = False
        self.ready = False
        self.sent = 0
        self.under_way = 0


class Publisher:
    """The writing side of a board, on this node.

    Args:
        dispatcher: Sends the messages.
        board: Name of the board.
        readers: Ids of the nodes that read it.
    """

    def __init__(self, dispatcher: Dispatcher, board: str, readers: tuple[int, ...]) -> None:
        self.board = board
        self._dispatcher = dispatcher
        self._lock = threading.Condition()
        self._readers = {node: _BoardReader() for node in readers}
        self._messages: list[_Message] = []
        self._number = 0
        dispatcher.add_publisher(self)

    def publish(self, keys: set[str], packed: Packed) -> None:
        """Publish new values; `packed` is a dict of all `keys`."""
        with self._lock:
            self._number += 1
            for message in self._messages:
                message.keys -= keys
            for message in [each for each in self._messages if not each.keys]:
                self._messages.remove(message)
                message.parcel.drop()
            self._messages.append(_Message(self._number, keys, self._dispatcher.parcel(packed)))
            for node, reader in self._readers.items():
                self._send_newest(node, reader)

    def acknowledged(self, node: int) -> None:
        """Record that a reader has read one message."""
        with self._lock:
            reader = self._readers.get(node)
            if reader is not None:
                reader.under_way = max(0, reader.under_way - 1)
                self._send_newest(node, reader)
                self._lock.notify_all()

    def linked(self, node: int) -> None:
        """Send the newest value of every key to a reader that is now linked."""
        with self._lock:
            reader = self._readers.get(node)
            if reader is not None:
                reader.ready, reader.sent, reader.under_way = True, 0, 0
                reader.is_gone = False
                self._send_newest(node, reader)

    def lost(self, node: int) -> None:
        """Record that a reader cannot be reached."""
        with self._lock:
            if node in self._readers:
                self._readers[node].ready = False
                self._lock.notify_all()

    def gone(self, node: int) -> None:
        """Stop waiting for a reader; it may come back."""
        with self._lock:
            if node in self._readers:
                self._readers[node].ready, self._readers[node].is_gone = False, True
                self._lock.notify_all()

    def wait_until_sent(self, deadline: float) -> None:
        """Wait until every reader was sent the newest values, or until the deadline."""

        def sent() -> bool:
            readers = list(self._readers.values())
            return all(reader.is_gone or reader.sent == self._number for reader in readers)

        self._dispatcher.wait_for(self._lock, sent, max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Drop all messages."""
        with self._lock:
            for message in self._messages:
                message.parcel.drop()
            self._messages.clear()

    def _send_newest(self, node: int, reader: _BoardReader) -> None:
        if not reader.ready:
            return
        for message in self._messages:
            if reader.under_way >= _UNDER_WAY:
                return
            if message.number > reader.sent:
                reader.sent = message.number
                reader.under_way += 1
                head = heads.encode(heads.BoardMessage(self.board, message.number))
                self._dispatcher.send(node, head, message.parcel)


class Subscriber:
    """The reading side of a board, on this node, for all writers of the board.

    Args:
        dispatcher: Receives the messages.
        board: Name of the board.
        accept: Called with the sender and the new values, on the link thread.
    """

    def __init__(
        self, dispatcher: Dispatcher, board: str, accept: Callable[[int, Mapping[str, Any]], None]
    ) -> None:
        self.board = board
        self._dispatcher = dispatcher
        self._accept = accept
        dispatcher.add_subscriber(self)

    def received(self, number: int, delivery: Delivery) -> None:
        """Apply a message as a whole, and acknowledge it."""
        sender = delivery.sender
        values = unpack(delivery.tree, delivery.buffers)
        delivery.release()
        assert isinstance(values, dict)
        self._accept(sender, values)
        incarnation = self._dispatcher.incarnation_of(sender)
        self._dispatcher.send(sender, heads.encode(heads.BoardAck(self.board, number, incarnation)))

    def close(self) -> None:
        """Stop reading."""
        self._accept = _ignore


def _ignore(sender: int, values: Mapping[str, Any]) -> None:
    """Drop the values."""
