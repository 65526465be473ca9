"""Unrolls: a few steps of all environments of one actor, sent to a learner's batch.

    actor:    Slots of one slot, written in place ──> SentUnroll
    learner:  SentUnroll ──> its slot of a batch: Slots of as many slots as a batch has unrolls

Both are `Slots`, so networks and losses read a batch like a rollout in step. An actor in the
learner's own process writes directly into the batch, and nothing is sent.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from muster.data.obs import Array, Obs
from muster.data.slots import SlotPlan, Slots, obs_parts
from muster.flow import register_dataclass

_WRITTEN = ("action", "logp", "reward", "terminated", "truncated", "state", "first")
"""The columns that actors write, besides observations."""


@register_dataclass
@dataclass(slots=True, eq=False)
class CutEpisodes:
    """The C episodes that were truncated within an unroll, in the order of their ends."""

    step: Array
    """int64 [C], the last step of each."""
    env: Array
    """int64 [C], the environment of each."""
    obs: Obs | None
    """[C, ...], the last observations; None if there are none."""
    state: Array
    """float32 [C, state_width], the recurrent state at that time."""


@register_dataclass
@dataclass(slots=True, eq=False)
class SentUnroll:
    """An unroll, and its metadata."""

    columns: dict[str, Array]
    """By the names of `SlotPlan.fields`, without the axis of buffers."""
    cut: CutEpisodes
    episodes: list[tuple[float, float]]
    """Return and length of each episode that ended in the unroll."""
    version: int
    """Version of the weights at its start."""
    session: int
    """Incarnation of the learner that made these weights."""
    number: int
    """Number among the unrolls that its sender began in this session, from 1."""
    metrics: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Sum and count of the environment's own metrics, by name."""


def make_slots(plan: SlotPlan) -> Slots:
    """Return the slots of a plan in this process's private memory."""
    fields = plan.fields().items()
    return Slots(plan, {name: np.zeros(shape, dtype) for name, (shape, dtype) in fields})


def written_columns(slots: Slots) -> dict[str, Array]:
    """Return the columns that an actor has written, by name, without copies."""
    columns = {f"obs{key}": part for key, part in obs_parts(slots.obs).items()}
    for name in _WRITTEN:
        column: Any = getattr(slots, name)
        if column is not None:
            columns[name] = column
    return columns


def put_unroll(slots: Slots, slot: int, columns: dict[str, Array]) -> None:
    """Copy the columns that an actor has written into one slot of a batch."""
    mine = slots.plan.columns(slot)
    for name, column in written_columns(slots).items():
        column[:, mine] = columns[name]
