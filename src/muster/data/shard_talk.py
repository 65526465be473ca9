"""The messages between the learner and the shards of its replay.

    learner: hello   -> hello    :shard     which shards exist?
             begin   -> ready               begin empty, or with saved contents
                     <- offer               a fragment arrived and waits to be stored
             insert  -> inserted            store the oldest that was offered
             draw    -> drawn               read these places
             save    -> saved

A process of a shard is identified by its generation, a process of the learner by its session; both
are incarnation numbers. An order names the generation that it is for, a report the session. So
messages from or to a dead process mean nothing to its replacement.
"""

from dataclasses import dataclass
from typing import Any

from muster.data.batch import Batch, SequenceBatch
from muster.data.shard_state import Contents, Learned
from muster.flow import register_dataclass

register_dataclass(Batch)
register_dataclass(SequenceBatch)


@register_dataclass
@dataclass(slots=True, eq=False)
class ShardOrder:
    """A request of the learner to a shard."""

    verb: str
    """`hello`, `begin`, `insert`, `draw` or `save`."""
    generation: int = 0
    """Generation of the receiving shard; `hello` is for any."""
    learned: Learned | None = None
    """The errors known so far."""
    given: Any = None
    """begin: the state, or None. draw: its number, and parts of the shard's mass."""


@register_dataclass
@dataclass(slots=True, eq=False)
class ShardReport:
    """A message of a shard to the learner."""

    verb: str
    """`hello`, `ready`, `offer`, `inserted`, `drawn` or `saved`."""
    session: int = 0
    """Session of the receiving learner; `hello` is for any."""
    contents: Contents | None = None
    """Contents after the request was carried out."""
    given: Any = None
    """offer: transitions. inserted: transitions, version, note. drawn: number, batch, chance, with
    the shard's own index. saved: the state."""
