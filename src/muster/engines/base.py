"""The narrow protocol between a parallel program and its engine: launch, send, receive, stop.

    Engine.run(launch)            parent: starts, watches and ends nodes; returns their results
    Transport (one in each node)  parcel -> send -> Receiver.received on the other node

A transport keeps the order between two nodes, loses nothing while both live, and never blocks. Its
user has to limit the amount of data in flight.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from muster.errors import MusterError
from muster.framework.driver import DriverLink
from muster.framework.labels import Labels
from muster.framework.node import Finish, Place, Use

OnFailure = Literal["stop", "restart", "resume"]

ROW = 128
"""Bytes per node at the start of the shared memory, in the order of node ids."""
LIVED = ROW - 8
"""Offset in its row where a node records that it lived on this machine; cleared in other copies."""


@dataclass(frozen=True)
class Launch:
    """A program, and the options of `Parallel.runner` that it runs with."""

    main: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    places: tuple[Place, ...]
    late: frozenset[int]
    """Ids of the elastic nodes that the run begins without; they join as soon as there is room."""
    on_failure: Mapping[int, OnFailure]
    """What happens when a node dies or hangs, by node id."""
    max_restarts: int
    """How often one node is replaced before the run is given up."""
    hang_after: float
    """Seconds without progress after which a node counts as hung."""
    start_within: float
    """The same limit from a node's start to its first progress."""
    grace: float
    """Seconds that a node has to end by itself after it was told to."""
    threads: int | None
    """Threads of numeric libraries in each node; None divides the cores among the nodes."""
    pin: bool
    """Whether each node is bound to its own cores."""
    log_dir: Path | None
    """Directory for the output of each node, which is also shown; None for no files."""
    on_signal: frozenset[int]
    """Ids of the nodes that a signal asks to finish; the others end when one of these ends."""
    quiet: bool
    """Whether replaced nodes are mentioned in the logs only, not on standard error."""
    resources: Mapping[int, Mapping[str, float]]
    """Resources reserved for each node, by node id, if the engine can reserve them."""
    address: str | None
    """Address of the cluster, for an engine that runs on one; None for the engine's default."""
    driver: DriverLink | None = None
    """Messages between the caller and node 0; None if there are none."""


class Engine(Protocol):
    """Runs a program on its nodes."""

    def prepare(self, modules: Sequence[str], address: str | None) -> None:
        """Start importing these modules for the nodes of later runs, without waiting.

        Raises OptionError for an address at which there is no cluster to join.
        """

    def run(self, launch: Launch) -> list[Any]:
        """Return the results of `main`, one per node. Leaves nothing behind when it ends."""


class Alarm(Protocol):
    """Tells the supervisor that something all nodes depend on is lost."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when that happens."""

    def error(self) -> MusterError:
        """Return the error that ends the run."""


class Parcel(Protocol):
    """A copy of a message, ready to be sent to any number of nodes."""

    nbytes: int

    def drop(self) -> None:
        """Release the copy: it will not be sent again."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A received message. Its buffers may be read until `release` is called."""

    sender: int
    head: bytes
    tree: bytes
    buffers: Sequence[memoryview]
    release: Callable[[], None]


class Receiver(Protocol):
    """Called by the transport, on its own thread; must not block it."""

    def received(self, delivery: Delivery) -> None:
        """Handle a message, and release it."""

    def linked(self, peer: int, incarnation: int) -> None:
        """The link to this node is up. Messages to an earlier incarnation are lost."""

    def lost(self, peer: int) -> None:
        """The link to this node is down, until it is linked again."""

    def gone(self, peer: int, incarnation: int | None = None) -> None:
        """This node has ended or left, so no one waits for it.

        An elastic node may be linked again, as a later incarnation than the one that left.
        """

    def joined(self, peer: int) -> None:
        """This elastic node, which was absent, has joined."""

    def replaced(self, total: int) -> None:
        """This many nodes of the run have been replaced so far."""

    def told_to_finish(self, finish: Finish) -> None:
        """The run has to end."""

    def heard_driver(self, message: object) -> None:
        """The process that started the run has sent this node a message."""


class Transport(Protocol):
    """Connects a node to the others."""

    place: Place

    def start(self, receiver: Receiver) -> None:
        """Start receiving; returns when all nodes that are already up are linked."""

    def parcel(self, tree: bytes, buffers: Sequence[memoryview]) -> Parcel:
        """Copy a message for sending."""

    def send(self, to: int, head: bytes, parcel: Parcel | None = None) -> bool:
        """Send without waiting. False if that node is not linked."""

    def meet(self, task: int, uses: Sequence[Use], labels: Labels) -> str | None:
        """Wait until every node has called this; return what is wrong with the program, or None."""

    def finishing(self, by: str) -> None:
        """Tell the supervisor that this node ends the run."""

    def tell_driver(self, message: object) -> None:
        """Send a message to the process that started the run."""

    def advance(self) -> None:
        """Count progress of the main thread."""

    def reach(self, mark: int) -> None:
        """Report how far this node is, by a count that continues across its incarnations."""

    def looping(self, is_looping: bool) -> None:
        """Record that the main thread enters or leaves `Task.run`."""

    def wait_for(
        self, changed: threading.Condition, until: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Wait until `until` holds, which a message makes true; False after `timeout` seconds.

        The caller must not hold `changed`, which is notified when `until` may have become true.
        Meanwhile the node counts as waiting, not as hung.
        """

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block a thread waits for other nodes by its own means."""

    def saving(self) -> AbstractContextManager[None]:
        """Within this block the node writes to disk, and is not ended for being slow."""

    def shared_memory(self, size: int) -> memoryview:
        """Return the first `size` bytes of the memory that all nodes and their incarnations share.

        The memory is zero at the start of the run, and every caller gets the same bytes. It begins
        with a row of `ROW` bytes for each node, whose first 8 bytes count what the node has
        published. If `is_spread`, every machine has its own copy.
        """

    is_spread: bool
    """Whether nodes are on several machines: then they see only bytes that were published."""

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Replicate these bytes of the shared memory to all machines, then set this node's counter.

        Returns at once. The counter is set on the other machines first and here last: once it is
        set here, every machine has the bytes. If the node dies meanwhile, either all bytes were
        replicated or the counter here is unchanged. The bytes must not change until the counter is
        set. Only for `is_spread`: otherwise the node sets its counter itself.
        """

    def stop(self) -> None:
        """Send all queued messages, and stop."""


NodeMain = Callable[[Transport, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]
"""Makes a node from a transport, and runs `main` on it."""
