"""Nodes wait before their first loop until all are there and their program makes sense."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from muster.engines.orders import AtRun, Go
from muster.framework.labels import matches
from muster.framework.node import Place


class Waiting(Protocol):
    """A node, as far as this room needs it."""

    place: Place
    ended: bool

    def tell(self, order: object) -> None:
        """Give an order."""


class Rendezvous:
    """Who has come so far, for each task of the program."""

    def __init__(self, members: Sequence[Waiting]) -> None:
        self._members = members
        self._here: dict[int, dict[int, AtRun]] = defaultdict(dict)
        self._over: set[int] = set()

    def arrive(self, member: Waiting, at: AtRun) -> None:
        """Note that a node is about to run a task."""
        if at.task in self._over:  # it was replaced, and the others are running
            member.tell(Go(at.task, None))
            return
        self._here[at.task][member.place.node_id] = at
        self.look()

    def look(self) -> None:
        """Let a task run for which no one is missing. Who has ended will not come."""
        expected = {m.place.node_id for m in self._members if not m.ended}
        for task, here in list(self._here.items()):
            if task not in self._over and expected <= here.keys():
                self._over.add(task)
                problem = _nobody_runs(here.values())
                for member in self._members:
                    if member.place.node_id in here:
                        member.tell(Go(task, problem))


def _nobody_runs(program: Iterable[AtRun]) -> str | None:
    """Name a middleware whose filter no node's labels meet."""
    nodes = list(program)
    for node in nodes:
        for use in node.uses:
            wanted = use.filter_labels
            if wanted is not None and not any(matches(each.labels, wanted) for each in nodes):
                there = sorted(set().union(*(each.labels for each in nodes)))
                return (
                    f"no node would run {use.name!r}: it wants {', '.join(wanted)}\n"
                    f"the labels of all nodes are: {', '.join(there)}"
                )
    return None
