"""`Channel`: a bounded queue for items that must not be lost, such as experience.

    put, on any node -> window of `capacity` items for each writer -> get, at home

Every writer has its own window, so a fast, slow or dead writer does not affect the others. An item
counts as read when `get` has returned it: only then may its writer put another.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from muster.errors import OptionError, TaskError
from muster.flow.node import this_node
from muster.flow.places import find_home
from muster.flow.stream import Inlet, Item, Outlet
from muster.flow.wire import pack


@dataclass(frozen=True, slots=True)
class Parcelled:
    """An item, and its source."""

    value: Any
    sender: int
    incarnation: int
    """The process of that node: a new process does not continue the items of an earlier one."""


class Channel:
    """A bounded queue from all nodes to one: in order for each writer, no losses, no duplicates.

    Outside a parallel run, it is a queue in this process.

    Args:
        name: The same on all nodes.
        home: The node that reads: `role.<name>`, `node.<id>` or a node id.
        capacity: Maximum number of unread items of each writer.
        beside: Another channel of this node, so that `wait_for_any` can wait for both.
    """

    def __init__(
        self,
        name: str,
        home: str | int = 0,
        capacity: int = 16,
        beside: "Channel | None" = None,
    ) -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
            raise OptionError(
                f"capacity={capacity!r} is not possible",
                "it must be a number of items, 1 or more",
                "capacity=16",
            )
        self.name = name
        self.capacity = capacity
        self._node = this_node()
        self._changed: threading.Condition = (
            threading.Condition() if beside is None else beside._changed
        )
        self._items: deque[Item | Parcelled] = deque()
        self._outlet: Outlet | None = None
        self._inlet: Inlet | None = None
        self.waited = 0.0
        """Seconds that `put` has waited for room so far."""
        self._home = 0
        if self._node is not None:
            self._home = find_home(self._node, home, f"channel {name!r}")
            if self.is_home:
                self._inlet = Inlet(self._node.dispatcher, f"channel.{name}", self._accept)
                self._node.on_finish(self._wake)
            else:
                self._outlet = Outlet(
                    self._node.dispatcher, f"channel.{name}", self._home, capacity
                )

    @property
    def is_home(self) -> bool:
        """Whether this node reads."""
        return self._node is None or self._node.place.node_id == self._home

    def __len__(self) -> int:
        """Return the number of items that can be read without waiting."""
        return len(self._items)

    def incarnation_of(self, sender: int) -> int:
        """Return the incarnation of a node that is linked, or was last; 0 before that."""
        return 0 if self._node is None else self._node.dispatcher.incarnation_of(sender)

    def is_away(self, sender: int) -> bool:
        """Whether an elastic node is absent: it has not joined yet, or has left."""
        return self._node is not None and self._node.is_away(sender)

    def put(self, value: Any, timeout: float | None = None) -> bool:
        """Send an item; wait while there is no room. False if the run finished first.

        Raises:
            TimeoutError: There was no room within `timeout` seconds.
        """
        if value is None:
            raise OptionError(
                "None cannot be put into a channel",
                "get returns None when the run is over",
                "put another value, such as an empty tuple",
            )
        started = time.monotonic()
        try:
            if self._outlet is not None:
                return self._outlet.put(pack(value, self.name), timeout, given_up=self._is_finished)
            return self._put_here(value, timeout)
        finally:
            self.waited += time.monotonic() - started

    def get(self, timeout: float | None = None) -> Any:
        """Return the next item; None when the run has finished and no item is left.

        Raises:
            TimeoutError: No item arrived within `timeout` seconds.
        """
        item = self.get_with_source(timeout)
        return None if item is None else item.value

    def get_with_source(self, timeout: float | None = None) -> Parcelled | None:
        """Return the next item with its source; otherwise like `get`."""
        if not self.is_home:
            raise TaskError(
                f"channel {self.name!r} is not read here",
                f"its home is node {self._home}",
                f"filter_labels=['node.{self._home}'] for the middleware that reads it",
            )
        while True:
            with self._changed:
                if self._items:
                    item = self._items.popleft()
                    self._changed.notify_all()
                    break
                if self._is_finished():
                    return None
            self._wait(lambda: bool(self._items) or self._is_finished(), timeout)
        if isinstance(item, Parcelled):
            return item
        assert self._inlet is not None
        value = item.value()
        self._inlet.acknowledge(item)
        return Parcelled(value, item.sender, item.incarnation)

    def __iter__(self) -> Iterator[Any]:
        """Yield items until the run has finished."""
        while (value := self.get()) is not None:
            yield value

    def wait_for_any(self, *others: "Channel", timeout: float | None = None) -> bool:
        """Wait until this channel or one of `others` can be read; False if the run finishes first.

        Args:
            *others: Channels that this node reads too, made `beside` this one or each other.
            timeout: Maximum wait in seconds.

        Raises:
            TimeoutError: No item arrived in time.
        """
        for other in others:
            if other._changed is not self._changed:
                raise OptionError(
                    f"channels {self.name!r} and {other.name!r} cannot be waited for together",
                    "neither was opened beside the other",
                    f"Channel({other.name!r}, ..., beside=the other)",
                )
        everyone = (self, *others)
        self._wait(lambda: any(map(len, everyone)) or self._is_finished(), timeout)
        return any(map(len, everyone))

    def _put_here(self, value: Any, timeout: float | None) -> bool:
        def has_room() -> bool:
            return len(self._items) < self.capacity

        if not has_room():
            self._wait(lambda: has_room() or self._is_finished(), timeout)
        with self._changed:
            if not has_room():
                return False
            place = None if self._node is None else self._node.place
            me, incarnation = (place.node_id, place.incarnation) if place else (0, 0)
            self._items.append(Parcelled(value, me, incarnation))
            self._changed.notify_all()
            return True

    def _wait(self, until: Callable[[], bool], timeout: float | None) -> None:
        if self._node is not None:
            done = self._node.dispatcher.wait_for(self._changed, until, timeout)
        else:
            with self._changed:
                done = self._changed.wait_for(until, timeout)
        if not done:
            raise TimeoutError(f"channel {self.name!r} made no progress for {timeout} s")

    def _accept(self, item: Item) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _is_finished(self) -> bool:
        return self._node is not None and self._node.is_finished
