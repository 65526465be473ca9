"""What the learner and the shards of its replay say to each other.

    learner: Announce      -> Hello   :shard           who is there?
             Begin         -> Ready                    begin empty, or with a saved content
                           <- Offer                    a fragment came and wants to be stored
             Insert        -> Inserted                 store the oldest that was offered
             Draw          -> Drawn                    read these places
             Save          -> Saved

The process of a shard is its generation, the process of the learner a session: both are numbers of
incarnations. An order names the generation it is for, a report the session. So what was said by or
to a process that has died means nothing to the one after it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.batch import VersionedBatch
from muster.flow import register_dataclass

register_dataclass(VersionedBatch)


@register_dataclass
@dataclass(slots=True, eq=False)
class Learned:
    """How large errors were: new priorities."""

    index: NDArray[np.int64]
    """In the shard's own numbers."""
    td_error: NDArray[np.float64]
    largest: float
    """The largest p^alpha of all shards, so that what is new is as important in each of them."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Announce:
    """Asks a shard to say hello; for whoever reads it."""

    name: str


@register_dataclass
@dataclass(slots=True, eq=False)
class Begin:
    """Be empty, or as `state` says."""

    generation: int
    state: dict[str, Any] | None


@register_dataclass
@dataclass(slots=True, eq=False)
class Insert:
    """Store the oldest fragment that was offered and not stored."""

    generation: int
    learned: Learned | None


@register_dataclass
@dataclass(slots=True, eq=False)
class Draw:
    """Read what lies at these parts of the shard's mass."""

    generation: int
    learned: Learned | None
    number: int
    where: NDArray[np.float64]


@register_dataclass
@dataclass(slots=True, eq=False)
class Save:
    """Tell all that is stored."""

    generation: int
    learned: Learned | None


Order = Begin | Insert | Draw | Save


@register_dataclass
@dataclass(slots=True, eq=False)
class Hello:
    """A shard is there, and waits for `Begin`."""

    name: str


@register_dataclass
@dataclass(slots=True, eq=False)
class Contents:
    """What a shard holds."""

    inserted: int
    """Transitions ever, in its own numbers."""
    stored: int
    mass: float
    largest: float
    """The largest p^alpha that it has known."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Ready:
    """A shard has begun."""

    session: int
    contents: Contents


@register_dataclass
@dataclass(slots=True, eq=False)
class Offer:
    """A fragment waits at a shard."""

    session: int
    size: int
    """Its transitions."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Inserted:
    """A fragment was stored."""

    session: int
    contents: Contents
    size: int
    version: int
    note: Any


@register_dataclass
@dataclass(slots=True, eq=False)
class Drawn:
    """What was read, with its index in the shard's own numbers."""

    session: int
    contents: Contents
    number: int
    batch: VersionedBatch
    chance: NDArray[np.float64] | None
    """How probable each row was in its shard; None where replay is uniform."""


@register_dataclass
@dataclass(slots=True, eq=False)
class Saved:
    """What is stored."""

    session: int
    state: dict[str, Any]


Report = Ready | Offer | Inserted | Drawn | Saved
