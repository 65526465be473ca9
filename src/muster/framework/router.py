"""The position of this node among the others."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from muster.framework.labels import Labels, standalone_labels
from muster.framework.node import Place


@dataclass(frozen=True, slots=True)
class Router:
    """A node's own address and its neighbours. A task without other nodes is node 0."""

    labels: Labels
    node_id: int = 0
    is_active: bool = False
    """Whether this is a parallel run, with other nodes."""
    peers: tuple[int, ...] = ()
    role: str | None = None
    incarnation: int = 0
    """How many times this node has been replaced."""
    resumed: bool = False
    """Whether this node replaces one and should resume from its last checkpoint."""
    age: float = 0.0
    """Seconds from the start of the node's first incarnation to that of this one."""

    @classmethod
    def alone(cls, async_mode: bool, own: Iterable[str]) -> Self:
        """Return the router of a task without other nodes; `own` are the labels given to `Task`."""
        return cls(standalone_labels(async_mode, own))

    @classmethod
    def at(cls, place: Place, async_mode: bool, own: Iterable[str]) -> Self:
        """Return the router of a task on a node."""
        mode = {"async"} if async_mode else set()
        return cls(
            labels=place.labels | mode | frozenset(own),
            node_id=place.node_id,
            is_active=True,
            peers=place.peers,
            role=place.role,
            incarnation=place.incarnation,
            resumed=place.resumed,
            age=place.age,
        )
