"""`ProgramNode`: connects the tasks, channels and servers of this process to other nodes."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from muster.engines.base import Delivery, Transport
from muster.errors import TaskError
from muster.flow.dispatcher import Dispatcher
from muster.flow.task_link import NodeTaskLink
from muster.framework.events import Events
from muster.framework.node import Finish, Place, current_node, on_node

FLUSH_SECONDS = 60.0
"""Seconds that an ending node waits until others, possibly still starting, have its messages."""


class ProgramNode:
    """Implements `muster.framework.node.Node`; called by its transport."""

    def __init__(self, transport: Transport) -> None:
        self.place: Place = transport.place
        self.dispatcher = Dispatcher(transport)
        self.finish: Finish | None = None
        """Set when the run has to end."""
        self.replacements = 0
        """Number of nodes of this run that were replaced, as far as this node knows."""
        self._transport = transport
        self._links: list[NodeTaskLink] = []
        self._on_finish: list[Callable[[], None]] = []
        self._is_gathering = False
        self._opened = 0
        self._from_driver: deque[object] = deque()
        self._driver_spoke = threading.Condition()

    def open_task(self, events: Events, finish: Callable[[Finish], None]) -> NodeTaskLink:
        """Connect a task to its counterparts: the n-th task of each node belongs together."""
        number = self._opened
        self._opened += 1

        def finish_task(reason: Finish) -> None:
            self._note_finish(reason)
            finish(reason)

        link = NodeTaskLink(self.dispatcher, self._transport, number, events, finish_task)
        self._links.append(link)
        if self.finish is not None:
            link.told_to_finish(self.finish)
        return link

    @property
    def is_finished(self) -> bool:
        """Whether the run has to end, so that channels no longer wait."""
        if self.finish is None:
            return False
        return not (self._is_gathering and self.finish.is_first)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Within this block channels keep working, as long as the other nodes run on for this one.

        For data that a node still needs from others after a signal has asked it to finish.
        """
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            if self.finish is not None:  # for other threads
                self._wake()

    def is_away(self, node: int) -> bool:
        """Whether an elastic node is absent: it has not joined yet, or has left."""
        return self.dispatcher.is_away(node)

    def advance(self) -> None:
        """Count progress of the main thread."""
        self._transport.advance()

    def reach(self, mark: int) -> None:
        """Report how far this node is, by a count that continues across its incarnations."""
        self._transport.reach(mark)

    def shared_memory(self, size: int) -> memoryview:
        """Return memory that all nodes share; with several machines, each machine has a copy."""
        if self.place.elastic:
            role = self.place.roles[min(self.place.elastic)]
            raise TaskError(
                f"nodes of a program whose role {role!r} is a range cannot share memory",
                "nodes of that role come and go, and nodes that share memory wait for all others",
                f"one number for roles[{role!r}], or Channel and ParameterServer",
            )
        return self._transport.shared_memory(size)

    @property
    def is_spread(self) -> bool:
        """Whether nodes are on several machines, which see only published bytes."""
        return self._transport.is_spread

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Replicate these bytes of the shared memory to all machines, then set the counter."""
        self._transport.publish(spans, count)

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block the node waits for others, and does not count as hung."""
        return self._transport.waiting()

    def saving(self) -> AbstractContextManager[None]:
        """Within this block the node writes to disk, and is not ended for being slow."""
        return self._transport.saving()

    def tell_driver(self, message: object) -> None:
        """Send a message to the process that started the run."""
        self._transport.tell_driver(message)

    def hear_driver(self, wait: bool) -> object | None:
        """Return the driver's next message; None if there is none, or if the run has to end."""
        if wait:
            self._transport.wait_for(
                self._driver_spoke, lambda: bool(self._from_driver) or self.finish is not None, None
            )
        return self._from_driver.popleft() if self._from_driver else None

    def on_finish(self, fn: Callable[[], None]) -> None:
        """Call `fn` when the run has to end; it must not block."""
        self._on_finish.append(fn)
        if self.finish is not None:
            fn()

    def _note_finish(self, finish: Finish) -> None:
        if self.finish is None or (self.finish.is_first and not finish.is_first):
            self.finish = finish
            self._wake()

    def _wake(self) -> None:
        """Wake all waiting threads, so that they check whether the run has to end."""
        for fn in self._on_finish:
            fn()
        with self._driver_spoke:
            self._driver_spoke.notify_all()
        self.dispatcher.wake_writers()

    # ---- from the transport

    def received(self, delivery: Delivery) -> None:
        """Route a message."""
        self.dispatcher.received(delivery)

    def linked(self, peer: int, incarnation: int) -> None:
        """Record that a node can be reached."""
        self.dispatcher.linked(peer, incarnation)

    def lost(self, peer: int) -> None:
        """Record that a node cannot be reached."""
        self.dispatcher.lost(peer)

    def gone(self, peer: int, incarnation: int | None = None) -> None:
        """Stop waiting for a node."""
        self.dispatcher.gone(peer, incarnation)

    def joined(self, peer: int) -> None:
        """Record that an absent node has joined."""
        self.dispatcher.joined(peer)

    def replaced(self, total: int) -> None:
        """Record the total number of replaced nodes."""
        self.replacements = total

    def heard_driver(self, message: object) -> None:
        """Keep a message of the driver for the program."""
        with self._driver_spoke:
            self._from_driver.append(message)
            self._driver_spoke.notify_all()

    def told_to_finish(self, finish: Finish) -> None:
        """Record that the run has to end, and tell every task."""
        self._note_finish(finish)
        for link in self._links:
            link.told_to_finish(finish)


def run_node(
    transport: Transport,
    main: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Run a program's `main` as a node, and return its result."""
    node = ProgramNode(transport)
    transport.start(node)
    try:
        with on_node(node):
            value = main(*args, **kwargs)
    except BaseException:
        # The others are not told: nodes that wait for this one would fail too, and might be
        # reported first and blamed. The supervisor is told next, and ends the run.
        node.dispatcher.flush(FLUSH_SECONDS)
        transport.stop()
        raise
    node.dispatcher.flush(FLUSH_SECONDS)
    node.dispatcher.announce_end()
    transport.stop()
    return value


def this_node() -> ProgramNode | None:
    """Return the node of this process, or None outside a parallel run."""
    node = current_node()
    assert node is None or isinstance(node, ProgramNode)
    return node


def gathering() -> AbstractContextManager[None]:
    """Within this block channels keep working although a signal has asked this node to finish.

    They do so as long as the other nodes run on for it: see `on_signal` of `Parallel.runner`.
    """
    node = this_node()
    return nullcontext() if node is None else node.gathering()
