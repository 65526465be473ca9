"""The place of a rank, as the program sees it: ranks are nodes in a star, with rank 0 as node 0."""

from collections.abc import Callable

from muster.framework import topology
from muster.framework.labels import environment_labels
from muster.framework.node import Place


def place_of(rank: int, world: int) -> Place:
    """Return the place of a rank: that of a node in a program with the topology `star`."""
    return Place(
        node_id=rank,
        size=world,
        role=None,
        roles=(None,) * world,
        labels=frozenset({"distributed", f"node.{rank}"} | environment_labels()),
        peers=topology.neighbours("star", rank, world),
        linked=topology.linked("star", rank, world),
    )


class Seat:
    """A rank at the rendezvous before the first loop, as rank 0 sees it."""

    ended = away = False

    def __init__(self, place: Place, tell: Callable[[object], None]) -> None:
        self.place = place
        self.tell = tell
