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
    """Other nodes can connect to this node."""


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
    """Replicate these bytes of the shared memory to every machine, then the node's counter."""

    spans: tuple[tuple[int, int], ...]
    count: int


@dataclass(frozen=True, slots=True)
class ToDriver:
    """A message of the program to the process that started it."""

    message: Any


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
    """The advice of an error of muster's own."""

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
    """These nodes, each with its incarnation, accept connections."""

    nodes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Go:
    """Every node is about to run this task; or the problem that prevents it."""

    task: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class Gone:
    """Do not wait for this node: it has ended or, if it is elastic, has left or not yet joined."""

    node: int
    incarnation: int | None = None
    """For an elastic node, its last incarnation that left, -1 for none; later ones are present."""


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """This elastic node, which was absent, has joined."""

    node: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """This many nodes of the run have been replaced so far."""

    total: int


@dataclass(frozen=True, slots=True)
class FromDriver:
    """A message to the program from the process that started it."""

    message: Any


@dataclass(frozen=True, slots=True)
class End:
    """Finish the run."""

    finish: Finish
