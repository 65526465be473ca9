"""Messages between the supervisor and a node, over the pipe that the node inherited."""

import traceback
from dataclasses import dataclass
from typing import Any

from muster.errors import MusterError, raised_at, summary
from muster.framework.labels import Labels
from muster.framework.node import Finish, Use

# ---- from a node


@dataclass(frozen=True, slots=True)
class Listening:
    """The node can be connected to."""


@dataclass(frozen=True, slots=True)
class AtRun:
    """The node is about to run its n-th task."""

    task: int
    uses: tuple[Use, ...]
    labels: Labels


@dataclass(frozen=True, slots=True)
class Finishing:
    """The node has told the others that the run ends."""

    by: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Every machine is to see these bytes of the shared memory, and then the node's counter."""

    spans: tuple[tuple[int, int], ...]
    count: int


@dataclass(frozen=True, slots=True)
class Returned:
    """`main` returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """`main` raised."""

    summary: str
    """Its type and message, on one line."""
    why: str
    traceback: str
    fix: str | None = None
    """What an error of muster's own says to try."""

    @classmethod
    def of(cls, error: BaseException) -> "Raised":
        """Describe an exception."""
        why, fix = f"it comes from {raised_at(error)}", None
        if isinstance(error, MusterError):
            _, why, fix = (" ".join(str(part).split()) for part in error.args)
        return cls(summary(error), why, "".join(traceback.format_exception(error)), fix)


# ---- from the parent


@dataclass(frozen=True, slots=True)
class Present:
    """These nodes, and which incarnation of each, can be connected to."""

    nodes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Go:
    """Every node is about to run this task; or, what is wrong with it."""

    task: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class Gone:
    """This node is not waited for: it has ended, or, if it is elastic, is not there yet or left."""

    node: int
    incarnation: int | None = None
    """Which process of an elastic node it was at the latest, -1 for none: later ones are there."""


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """This node, which is elastic and was away, is at work."""

    node: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """So many nodes of this run were replaced so far."""

    total: int


@dataclass(frozen=True, slots=True)
class End:
    """Finish."""

    finish: Finish
