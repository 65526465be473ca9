"""What a task knows of the node it runs on. Who makes nodes, and how they talk, is not known here.

An engine runs `main` on a node and says so with `on_node`; every `Task` made meanwhile asks
`current_node`. Without one, a task runs by itself.
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
"""Where nodes are made of an engine's transport. By name: this room knows no other."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in its program. Incarnations differ only in what tells them apart."""

    node_id: int
    size: int
    """Nodes of the program."""
    role: str | None
    roles: tuple[str | None, ...]
    """The role of every node."""
    labels: Labels
    """Of `Parallel.runner`: mode, node, role and the user's own."""
    peers: tuple[int, ...]
    """Ids of its neighbours, sorted: who gets what a loop shares."""
    linked: tuple[int, ...]
    """Ids of all nodes it can talk to."""
    incarnation: int = 0
    """How often the node was replaced before."""
    resumed: bool = False
    """Whether it replaces one that is to go on from its last checkpoint."""
    age: float = 0.0
    """Seconds from the start of its first incarnation to that of this one."""
    elastic: frozenset[int] = frozenset()
    """Ids of the nodes that may join late, leave and come back: nobody waits for them."""

    @property
    def name(self) -> str:
        """What it is called in messages and logs."""
        return f"node {self.node_id}" + (f" ({self.role})" if self.role else "")


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the run is to end, as told to a node from outside."""

    by: str
    """Which node, or what else, ends it."""
    signal: int | None = None
    """The signal that the parent got, if that is the reason."""
    is_first: bool = False
    """Whether other nodes run on, and end only when this one ends the run."""


@dataclass(frozen=True, slots=True)
class Use:
    """A middleware as the other nodes get to know it."""

    name: str
    filter_labels: tuple[str, ...] | None


class Received(Mapping[str, Any]):
    """`task.parallel_ctx`: the newest value of every key that neighbours shared."""

    @abstractmethod
    def source(self, key: str) -> int:
        """Return the node that the value of `key` came from."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return one consistent copy."""

    @abstractmethod
    def wait(self, key: str, above: Any = None, timeout: float | None = None) -> Any:
        """Return the value of `key` once there is one (greater than `above`)."""


class TaskLink(Protocol):
    """One task's connection to the same task on the other nodes."""

    @property
    def received(self) -> Received:
        """What the neighbours shared."""

    def meet(self, uses: Sequence[Use], labels: Labels) -> None:
        """Wait until every node is about to run; refuse a middleware that nobody would run."""

    def share(self, values: Mapping[str, Any]) -> None:
        """Send a loop's values to the neighbours."""

    def emit(self, name: str, payload: Payload) -> None:
        """Send an event to every other node."""

    def wait_for_finish(self) -> None:
        """Wait until another node ends the run, or all others have left it."""

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block the task waits for other nodes, which is no hang."""

    def finish(self) -> None:
        """Tell every other node to finish, and wait until each has heard it."""

    def close(self) -> None:
        """Deliver what came in, wait until what went out has arrived."""


class Node(Protocol):
    """The node that this process is."""

    @property
    def place(self) -> Place:
        """Where it stands."""

    @property
    def replacements(self) -> int:
        """Nodes of this run that were replaced so far."""

    def is_away(self, node: int) -> bool:
        """Whether an elastic node is not there: it did not join yet, or has left."""

    def open_task(self, events: Events, finish: Callable[[Finish], None]) -> TaskLink:
        """Connect a task to its twins: the n-th task of one node is the n-th of every other."""

    def advance(self) -> None:
        """Note that the main thread got on. What never does this for long counts as hung."""

    def saving(self) -> AbstractContextManager[None]:
        """Within this block the node writes what must not be lost, however long that takes."""


_current: Node | None = None
_entering = threading.Lock()


def current_node() -> Node | None:
    """Return the node that this process is, or None if it runs by itself."""
    return _current


def advance() -> None:
    """Note that this node's work gets on; does nothing where no one watches."""
    if _current is not None:
        _current.advance()


def saving() -> AbstractContextManager[None]:
    """Have nobody end this node for being slow within this block; it writes to the disk."""
    return nullcontext() if _current is None else _current.saving()


def replacements() -> int | None:
    """Return how many nodes of this run were replaced so far; None in a run of one process."""
    return None if _current is None else _current.replacements


def nodes_here(role: str) -> tuple[int, ...]:
    """Return the ids of the nodes of a role that are there now, sorted; none in one process."""
    node = _current
    if node is None:
        return ()
    roles = enumerate(node.place.roles)
    return tuple(each for each, its_role in roles if its_role == role and not node.is_away(each))


def elastic_nodes_away() -> int:
    """Return how many of the most nodes that a program may have are not there now."""
    return 0 if _current is None else sum(map(_current.is_away, _current.place.elastic))


def elastic_nodes() -> dict[str, int]:
    """Return how many nodes of each role that is elastic are there now."""
    if _current is None:
        return {}
    place = _current.place
    roles = {place.roles[node] for node in place.elastic}
    return {role: len(nodes_here(role)) for role in sorted(filter(None, roles))}


@contextmanager
def on_node(node: Node) -> Iterator[None]:
    """Make this process that node."""
    global _current
    with _entering:
        outer, _current = _current, node
    try:
        yield
    finally:
        with _entering:
            _current = outer
