"""What the learner and the shards of its replay say to each other.

    learner: hello   -> hello    :shard     who is there?
             begin   -> ready               begin empty, or with a saved content
                     <- offer               a fragment came and wants to be stored
             insert  -> inserted            store the oldest that was offered
             draw    -> drawn               read these places
             save    -> saved

The process of a shard is its generation, the process of the learner a session: both are numbers of
incarnations. An order names the generation it is for, a report the session. So what was said by or
to a process that has died means nothing to the one after it.
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
    """What the learner asks of a shard."""

    verb: str
    """`hello`, `begin`, `insert`, `draw` or `save`."""
    generation: int = 0
    """Of the shard that it is for; `hello` is for whoever reads it."""
    learned: Learned | None = None
    """What is known of errors by now."""
    given: Any = None
    """begin: the state, or None. draw: its number, and parts of the shard's mass."""


@register_dataclass
@dataclass(slots=True, eq=False)
class ShardReport:
    """What a shard says."""

    verb: str
    """`hello`, `ready`, `offer`, `inserted`, `drawn` or `saved`."""
    session: int = 0
    """Of the learner that it is for; `hello` is for whoever reads it."""
    contents: Contents | None = None
    """What it holds after it did what was asked."""
    given: Any = None
    """offer: transitions. inserted: transitions, version, note. drawn: number, batch, chance, with
    the shard's own index. saved: the state."""
