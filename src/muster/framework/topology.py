"""Which nodes are neighbours, and so receive each other's shared keys."""

from typing import Literal, get_args

Topology = Literal["star", "mesh", "alone"]
TOPOLOGIES: tuple[str, ...] = get_args(Topology)


def neighbours(topology: str, node_id: int, size: int) -> tuple[int, ...]:
    """Return the ids of a node's neighbours, sorted."""
    if topology == "alone":
        return ()
    if topology == "star" and node_id != 0:
        return (0,)
    return linked(topology, node_id, size)


def linked(topology: str, node_id: int, size: int) -> tuple[int, ...]:
    """Return the ids of all nodes that events and `finish` reach, sorted."""
    if topology == "alone":
        return ()
    return tuple(other for other in range(size) if other != node_id)
