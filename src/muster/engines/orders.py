"""What the parent and a node tell each other, over the pipe that the node inherited."""

from dataclasses import dataclass
from typing import Any

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
    """`main` is done."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """`main` ended with an exception."""

    summary: str
    traceback: str


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
    """This node will not come back."""

    node: int


@dataclass(frozen=True, slots=True)
class End:
    """Finish."""

    finish: Finish
