"""The views that steps read and write, created once: creating a view costs as much as a kernel.

slots, columns -> step_views -> for each step: the arguments of `net.act`, the rows of `Actor`
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from muster.data.obs import at
from muster.data.slots import Slots
from muster.workers.actor import StepRows

Array = NDArray[Any]


class ActGroup(NamedTuple):
    """Environments that act in the same call."""

    columns: slice
    noise: Array
    """[T, n, width]."""
    memory: tuple[Array, ...]
    """State and `first` of a recurrent network; empty for others."""


class StepViews(NamedTuple):
    """The views that each step reads and writes."""

    acts: list[list[tuple[Any, ...]]]
    """The arguments of `net.act`, for each group."""
    actions: list[Array]
    rows: list[StepRows]


def step_views(slots: Slots, columns: slice, groups: Sequence[ActGroup]) -> StepViews:
    """Return views of all steps of some environments.

    Args:
        slots: The destination of the steps.
        columns: The environments.
        groups: The same environments, in the groups that act together.
    """
    steps = range(slots.plan.steps)
    return StepViews(
        [
            [
                (
                    at(slots.obs, (t, group)),
                    noise[t],
                    slots.action[t, group],
                    slots.logp[t, group],
                    slots.value[t, group],
                    *memory,
                )
                for group, noise, memory in groups
            ]
            for t in steps
        ],
        [slots.action[t, columns] for t in steps],
        [
            StepRows(
                at(slots.obs, (t + 1, columns)),
                slots.reward[t, columns],
                slots.terminated[t, columns],
                slots.truncated[t, columns],
            )
            for t in steps
        ],
    )
