"""Where this node stands among the others."""

from dataclasses import dataclass

from muster.framework.labels import Labels


@dataclass(frozen=True, slots=True)
class Router:
    """A node's own address and its neighbours. Alone, a task is node 0 without any."""

    labels: Labels
    node_id: int = 0
    is_active: bool = False
    peers: tuple[int, ...] = ()
