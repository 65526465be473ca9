"""The narrow protocol between a parallel program and its engine: launch, send, receive, stop.

    Engine.run(launch)            parent: start nodes, watch them, end them; their results
    Transport (one in each node)  parcel -> send -> Receiver.received on the other node

A transport keeps the order between two nodes, loses nothing while both live, and never blocks.
What may be on the way at once is for its user to limit.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from muster.errors import MusterError
from muster.framework.labels import Labels
from muster.framework.node import Finish, Place, Use

OnFailure = Literal["stop", "restart", "resume"]

ROW = 128
"""Bytes at the start of the shared memory that each node has for itself, in the order of ids."""
LIVED = ROW - 8
"""Where in its row a node notes that it lived on this machine: not so in a copy for another one."""


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
    """The same from its start to its first progress."""
    grace: float
    """Seconds that a node has for ending by itself once it was told to."""
    threads: int | None
    """Threads of numeric libraries in each node; None shares the cores among the nodes."""
    pin: bool
    """Whether each node is bound to cores of its own."""
    log_dir: Path | None
    """Where to write what each node prints; it is shown in any case."""
    on_signal: frozenset[int]
    """Ids of the nodes that a signal asks to finish; the others end when one of these does."""
    quiet: bool
    """Whether replaced nodes are mentioned in the logs only, not on standard error."""
    resources: Mapping[int, Mapping[str, float]]
    """What each node is to have for itself, by node id, where an engine can see to that."""
    address: str | None
    """Of the cluster, for an engine that runs on one; None for its own choice."""


class Engine(Protocol):
    """Runs a program on its nodes."""

    def prepare(self, modules: Sequence[str], address: str | None) -> None:
        """Import these modules ahead for the nodes of later runs, without waiting.

        Raises OptionError for an address at which no cluster can be joined.
        """

    def run(self, launch: Launch) -> list[Any]:
        """Return what `main` returned on each node. Nothing is left behind when this ends."""


class Alarm(Protocol):
    """Tells the supervisor that what all of its nodes depend on is lost."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable then."""

    def error(self) -> MusterError:
        """Return the error to end the run with."""


class Parcel(Protocol):
    """A copy of a message, ready to be sent to any number of nodes."""

    nbytes: int

    def drop(self) -> None:
        """Release it: it will not be sent again."""


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
        """A link to this node is up. Messages to an older incarnation are lost."""

    def lost(self, peer: int) -> None:
        """The link to this node is down, until it is linked again."""

    def gone(self, peer: int, incarnation: int | None = None) -> None:
        """This node has ended, or left: it is not waited for.

        One that is elastic may be linked again, as a later incarnation than the one that is gone.
        """

    def joined(self, peer: int) -> None:
        """This node, which is elastic and was gone, is at work."""

    def replaced(self, total: int) -> None:
        """So many nodes of this run were replaced so far."""

    def told_to_finish(self, finish: Finish) -> None:
        """The run is to end."""


class Transport(Protocol):
    """Connects a node to the others."""

    place: Place

    def start(self, receiver: Receiver) -> None:
        """Start receiving; returns when all nodes that are up already are linked."""

    def parcel(self, tree: bytes, buffers: Sequence[memoryview]) -> Parcel:
        """Take a copy of a message."""

    def send(self, to: int, head: bytes, parcel: Parcel | None = None) -> bool:
        """Send without waiting. False if that node is not linked now."""

    def meet(self, task: int, uses: Sequence[Use], labels: Labels) -> str | None:
        """Wait until every node has called this; return what is wrong with the program, or None."""

    def finishing(self, by: str) -> None:
        """Tell the supervisor that this node ends the run."""

    def advance(self) -> None:
        """Count progress of the main thread."""

    def reach(self, mark: int) -> None:
        """Set how far this node came, by a count that continues through its incarnations."""

    def looping(self, is_looping: bool) -> None:
        """Say that the main thread enters or leaves `Task.run`."""

    def wait_for(
        self, changed: threading.Condition, until: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Wait until `until` holds, which a message makes true; False if the time is up.

        The caller does not hold `changed`, which is notified when `until` may have become true.
        The node counts as waiting meanwhile, not as hung.
        """

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block a thread waits for other nodes by its own means."""

    def saving(self) -> AbstractContextManager[None]:
        """Within this block the node writes to the disk, and is not ended for being slow."""

    def shared_memory(self, size: int) -> memoryview:
        """Return the first bytes of memory that all nodes see, and every incarnation of them.

        It is zero at the start of the run, and all who ask get the same bytes. It begins with a row
        of `ROW` bytes for each node, the first 8 of which count what the node has published.
        Where `is_spread`, every machine has a copy of its own.
        """

    is_spread: bool
    """Whether nodes are on several machines: then others see only what is published."""

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Replicate these bytes of the shared memory to all machines, then set this node's counter.

        Returns at once. The counter is set on the other machines first and here last: once it is
        set here, every machine has the bytes. If the node dies meanwhile, all of it was replicated
        or the counter here is unchanged. The bytes must not change until the counter is set.
        Only where `is_spread`: otherwise the node sets its counter itself.
        """

    def stop(self) -> None:
        """Send what is queued, and stop."""


NodeMain = Callable[[Transport, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]
"""Makes a node from a transport, and runs `main` on it."""
