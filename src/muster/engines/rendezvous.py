"""A barrier before the first loop: all nodes are up, and some node runs each middleware."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from muster.engines.orders import AtRun, Go
from muster.framework.labels import matches
from muster.framework.node import Place


class Waiting(Protocol):
    """The part of a node that the rendezvous needs."""

    place: Place
    ended: bool
    away: bool

    def tell(self, order: object) -> None:
        """Send an order."""


class Rendezvous:
    """The nodes that have arrived, for each task of the program."""

    def __init__(self, members: Sequence[Waiting]) -> None:
        self._members = members
        self._here: dict[int, dict[int, AtRun]] = defaultdict(dict)
        self._over: set[int] = set()

    def arrive(self, member: Waiting, at: AtRun) -> None:
        """Record that a node is about to run a task."""
        if at.task in self._over:  # a replaced node, and the others are already running
            member.tell(Go(at.task, None))
            return
        self._here[at.task][member.place.node_id] = at
        self.look()

    def look(self) -> None:
        """Start each task for which all present nodes that have not ended have arrived."""
        expected = {m.place.node_id for m in self._members if not m.ended and not m.away}
        for task, here in list(self._here.items()):
            if task not in self._over and expected <= here.keys():
                self._over.add(task)
                problem = _nobody_runs(here.values())
                for member in self._members:
                    if member.place.node_id in here:
                        member.tell(Go(task, problem))


def _nobody_runs(program: Iterable[AtRun]) -> str | None:
    """Return the first middleware that no node would run, and why."""
    nodes = list(program)
    for node in nodes:
        for use in node.uses:
            wanted = use.filter_labels
            if wanted is not None and not any(matches(each.labels, wanted) for each in nodes):
                there = sorted(set().union(*(each.labels for each in nodes)))
                return (
                    f"no node would run {use.name!r}: it needs {', '.join(wanted)}\n"
                    f"the labels of all nodes are: {', '.join(there)}"
                )
    return None
