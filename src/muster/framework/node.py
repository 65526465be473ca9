"""What a task knows about its node; independent of the engine that made the node.

An engine runs `main` within `on_node`; every `Task` made there calls `current_node`. Without a
node, a task runs by itself.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from muster.framework.events import Events, Payload
from muster.framework.labels import Labels

NODE_MODULE = "muster.flow.node"
"""The module that makes nodes from an engine's transport. A name, as this package imports none."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a node in its program.

    Incarnations of a node differ only in `incarnation`, `resumed` and `age`.
    """

    node_id: int
    size: int
    """The number of nodes of the program."""
    role: str | None
    roles: tuple[str | None, ...]
    """The role of every node."""
    labels: Labels
    """Labels from `Parallel.runner`: mode, node, role and the user's own."""
    peers: tuple[int, ...]
    """Ids of its neighbours, sorted: the nodes that receive the shared keys of a loop."""
    linked: tuple[int, ...]
    """Ids of all nodes that this node can talk to."""
    incarnation: int = 0
    """How many times the node has been replaced."""
    resumed: bool = False
    """Whether this node replaces one and should resume from its last checkpoint."""
    age: float = 0.0
    """Seconds from the start of its first incarnation to that of this one."""
    elastic: frozenset[int] = frozenset()
    """Ids of the nodes that may join late, leave and come back; no node waits for them."""

    @property
    def name(self) -> str:
        """The node's name in messages and logs."""
        return f"node {self.node_id}" + (f" ({self.role})" if self.role else "")


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the run should end, as told to a node from outside."""

    by: str
    """The node or other cause that ends the run."""
    signal: int | None = None
    """The signal that the supervisor received, if that is the reason."""
    is_first: bool = False
    """Whether other nodes keep running until this one ends the run."""


@dataclass(frozen=True, slots=True)
class Use:
    """A middleware as described to the other nodes."""

    name: str
    filter_labels: tuple[str, ...] | None


class Received(Mapping[str, Any]):
    """`task.parallel_ctx`: the newest value of every key that neighbours shared."""

    @abstractmethod
    def source(self, key: str) -> int:
        """Return the node that sent the value of `key`."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return a consistent copy of all values."""

    @abstractmethod
    def wait(self, key: str, above: Any = None, timeout: float | None = None) -> Any:
        """Return the value of `key` once there is one (greater than `above`)."""


class TaskLink(Protocol):
    """One task's connection to the same task on the other nodes."""

    @property
    def received(self) -> Received:
        """The values that the neighbours shared."""

    def meet(self, uses: Sequence[Use], labels: Labels) -> None:
        """Wait until every node is about to run; reject a middleware that no node would run."""

    def share(self, values: Mapping[str, Any]) -> None:
        """Send a loop's values to the neighbours."""

    def emit(self, name: str, payload: Payload) -> None:
        """Send an event to every other node."""

    def wait_for_finish(self) -> None:
        """Wait until another node ends the run, or all others have left it."""

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block the task waits for other nodes and does not count as hung."""

    def finish(self) -> None:
        """Tell every other node to finish, and wait until each has been told."""

    def close(self) -> None:
        """Deliver received messages; wait until sent messages have arrived."""


class Node(Protocol):
    """The node that runs in this process."""

    @property
    def place(self) -> Place:
        """The node's position in its program."""

    @property
    def replacements(self) -> int:
        """How many nodes of this run have been replaced so far."""

    def is_away(self, node: int) -> bool:
        """Whether an elastic node is absent: it has not joined yet, or has left."""

    def open_task(self, events: Events, finish: Callable[[Finish], None]) -> TaskLink:
        """Connect a task to its counterparts: the n-th task of each node belongs together."""

    def advance(self) -> None:
        """Record progress of the main thread. A node without progress for long counts as hung."""

    def saving(self) -> AbstractContextManager[None]:
        """Within this block the node may write for any length of time without counting as hung."""

    def tell_driver(self, message: object) -> None:
        """Send a message to the process that started the run."""

    def hear_driver(self, wait: bool) -> object | None:
        """Return the driver's next message; None if there is none, or if the run has to end.

        Args:
            wait: Wait for a message, for any length of time.
        """


_current: Node | None = None
_entering = threading.Lock()


def current_node() -> Node | None:
    """Return the node that runs in this process, or None if this process runs by itself."""
    return _current


def advance() -> None:
    """Record that this node makes progress; does nothing in a run of one process."""
    if _current is not None:
        _current.advance()


def saving() -> AbstractContextManager[None]:
    """Return a block in which this node, writing to disk, does not count as hung."""
    return nullcontext() if _current is None else _current.saving()


def replacements() -> int | None:
    """Return how many nodes of this run were replaced so far; None in a run of one process."""
    return None if _current is None else _current.replacements


def nodes_here(role: str) -> tuple[int, ...]:
    """Return the ids of the present nodes of a role, sorted; empty in a run of one process."""
    node = _current
    if node is None:
        return ()
    roles = enumerate(node.place.roles)
    return tuple(each for each, its_role in roles if its_role == role and not node.is_away(each))


def elastic_nodes_away() -> int:
    """Return how many elastic nodes are absent now, compared with the maximum."""
    return 0 if _current is None else sum(map(_current.is_away, _current.place.elastic))


def elastic_nodes() -> dict[str, int]:
    """Return the number of present nodes of each elastic role."""
    if _current is None:
        return {}
    place = _current.place
    roles = {place.roles[node] for node in place.elastic}
    return {role: len(nodes_here(role)) for role in sorted(filter(None, roles))}


@contextmanager
def on_node(node: Node) -> Iterator[None]:
    """Make `node` the current node of this process."""
    global _current
    with _entering:
        outer, _current = _current, node
    try:
        yield
    finally:
        with _entering:
            _current = outer
