"""`LocalTransport`: a node's links, its blocks and its pipe to the parent, as one object."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from muster.engines.base import Parcel, Receiver
from muster.engines.local.blocks import BlockPool, MemoryBlock
from muster.engines.local.handshake import Secrets
from muster.engines.local.link import LocalParcel, make_parcel
from muster.engines.local.link_hub import LinkHub
from muster.engines.memory import SharedMemory
from muster.engines.orders import (
    AtRun,
    End,
    Finishing,
    FromDriver,
    Go,
    Gone,
    Listening,
    NodeJoined,
    Present,
    Publish,
    Replaced,
    ToDriver,
)
from muster.engines.progress import LOOPING, OUTSIDE, SAVING, WAITING, ProgressRow
from muster.errors import TaskError
from muster.framework.labels import Labels
from muster.framework.node import Place, Use

_FLUSH_SECONDS = 10.0

_log = logging.getLogger("muster")


class LocalTransport:
    """Implements `muster.engines.base.Transport` for one process of this machine.

    Args:
        place: The place of this node.
        known: The run's secrets.
        directory: Directory of the nodes' sockets.
        parent: The pipe to the parent.
        progress: Where this node counts its progress.
        memory: The memory that all nodes share; None if it is lost.
        is_spread: Whether some nodes are on other machines.
    """

    def __init__(
        self,
        place: Place,
        known: Secrets,
        directory: Path,
        parent: Connection,
        progress: ProgressRow,
        memory: SharedMemory | None,
        is_spread: bool = False,
    ) -> None:
        self.place = place
        self.is_spread = is_spread
        self._memory = memory
        self._known = known
        self._directory = directory
        self._parent = parent
        self._telling = threading.Lock()
        self._progress = progress
        self._unwaited = OUTSIDE
        self._waiters = 0
        self._waiters_lock = threading.Lock()
        self._pool = BlockPool(self._forget)
        self._present = threading.Event()
        self._present_nodes: tuple[tuple[int, int], ...] = ()
        self._met: dict[int, str | None] = {}
        self._meeting = threading.Condition()

    def start(self, receiver: Receiver) -> None:
        """Start receiving; returns when all nodes that are already up are linked."""
        self._receiver = receiver
        self._hub = LinkHub(
            self.place,
            self._known,
            self._directory,
            self._pool,
            receiver,
            report=_log.warning,
            pulse=self._show_life,
        )
        self._hub.watch(self._parent.fileno(), self._hear_parent)
        self._hub.start()
        os.register_at_fork(after_in_child=self._let_go)
        self.tell(Listening())
        self._present.wait()
        for node, incarnation in self._present_nodes:
            if node in self.place.linked:
                self._hub.connect(node, incarnation)
        self._progress.set_state(OUTSIDE)

    def parcel(self, tree: bytes, buffers: Sequence[memoryview]) -> LocalParcel:
        """Copy a message for sending."""
        return make_parcel(self._pool, tree, buffers)

    def send(self, to: int, head: bytes, parcel: Parcel | None = None) -> bool:
        """Send without waiting. False if that node is not linked."""
        link = self._hub.link_to(to)
        if link is None:
            return False
        assert parcel is None or isinstance(parcel, LocalParcel)
        link.send(head, parcel)
        return True

    def meet(self, task: int, uses: Sequence[Use], labels: Labels) -> str | None:
        """Wait until every node has called this; return what is wrong with the program, or None."""
        self.tell(AtRun(task, tuple(uses), labels))
        self.wait_for(self._meeting, lambda: task in self._met, None)
        return self._met[task]

    def advance(self) -> None:
        """Count progress of the main thread."""
        self._progress.advance()

    def reach(self, mark: int) -> None:
        """Report how far this node is, by a count that continues across its incarnations."""
        self._progress.reach(mark)

    def finishing(self, by: str) -> None:
        """Tell the supervisor that this node ends the run."""
        self.tell(Finishing(by))

    def tell_driver(self, message: object) -> None:
        """Send a message to the process that started the run."""
        self.tell(ToDriver(message))

    def looping(self, is_looping: bool) -> None:
        """Record that the main thread enters or leaves `Task.run`."""
        self._unwaited = LOOPING if is_looping else OUTSIDE
        self._progress.set_state(self._unwaited)

    def wait_for(
        self, changed: threading.Condition, until: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Wait until `until` holds, which a message makes true; False after `timeout` seconds."""
        with self.waiting():
            deadline = None if timeout is None else time.monotonic() + timeout
            if self._hub.help(until, deadline):
                return until()
            # Another thread already reads the links.
            with changed:
                return changed.wait_for(until, timeout)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this block the node waits for others, and shows that it is alive."""
        with self._waiters_lock:
            self._waiters += 1
            self._progress.set_state(WAITING)
        try:
            yield
        finally:
            with self._waiters_lock:
                self._waiters -= 1
                if self._waiters == 0:
                    self._progress.set_state(self._unwaited)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Within this block the node saves data that must not be lost, however long that takes."""
        before, self._unwaited = self._unwaited, SAVING
        self._progress.set_state(SAVING)
        try:
            yield
        finally:
            self._unwaited = before
            with self._waiters_lock:
                self._progress.set_state(WAITING if self._waiters else before)

    def shared_memory(self, size: int) -> memoryview:
        """Return the memory that all nodes of this machine share."""
        if self._memory is None:
            raise TaskError(
                "the memory that the nodes of this run share is lost",
                "every machine, or Ray actor, that had a copy has died",
                "resume from the last checkpoint: muster train ... --resume --run-dir RUN",
            )
        return self._memory.view(size)

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Ask for these bytes to be replicated, and for this node's counter to be set."""
        self.tell(Publish(tuple(spans), count))

    def stop(self) -> None:
        """Send the remaining messages, and stop."""
        self._hub.stop(_FLUSH_SECONDS)
        self._pool.close()

    def tell(self, order: object) -> None:
        """Send the parent a message."""
        with self._telling:
            self._parent.send(order)

    def _let_go(self) -> None:
        """Close the connections in a process that was forked from a node."""
        self._hub.let_go()
        self._parent.close()

    def _show_life(self) -> None:
        # A stopped process, or one whose interpreter is held by one call, cannot do this.
        if self._waiters:
            self._progress.show_life()

    def _hear_parent(self) -> None:
        try:
            order = self._parent.recv()
        except (EOFError, OSError):
            os._exit(1)  # the parent has exited; no one is left to end this process
        if isinstance(order, Present):
            self._present_nodes = order.nodes
            self._present.set()
        elif isinstance(order, Go):
            with self._meeting:
                self._met[order.task] = order.problem
                self._meeting.notify_all()
        elif isinstance(order, Gone):
            self._receiver.gone(order.node, order.incarnation)
        elif isinstance(order, NodeJoined):
            self._receiver.joined(order.node)
        elif isinstance(order, Replaced):
            self._receiver.replaced(order.total)
        elif isinstance(order, End):
            self._receiver.told_to_finish(order.finish)
        elif isinstance(order, FromDriver):
            self._receiver.heard_driver(order.message)
        else:
            raise TypeError(f"the parent said {order!r}")

    def _forget(self, block: MemoryBlock) -> None:
        for peer in self.place.linked:
            link = self._hub.link_to(peer)
            if link is not None and link in block.known_to:
                link.send_forget(block.number)
