"""Values of the states after an unroll, and of the last states of truncated episodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import at, concatenated
from muster.data.slots import Slots
from muster.data.unrolls import CutEpisodes

Array = NDArray[Any]


def value_what_follows(
    net: Any, slots: Slots, cut: Sequence[CutEpisodes], memory: tuple[Array, ...]
) -> None:
    """Write the last row of `value`, and `final_value` where episodes were truncated.

    Args:
        net: A `PolicyNet` or a `RecurrentPolicy`.
        slots: Unrolls, one per slot.
        cut: The truncated episodes of each unroll.
        memory: For a recurrent network: its state after the last step, and where an episode has
            ended.
    """
    last = slots.plan.steps
    net.values(at(slots.obs, last), slots.value[last], *memory)
    ends = [(n, each) for n, each in enumerate(cut) if len(each.step)]
    if not ends:
        return
    value = np.empty(sum(len(each.step) for _, each in ends), np.float32)
    if memory:
        state = np.concatenate([each.state for _, each in ends])
        memory = (state, np.zeros(len(state), np.bool_))
    net.values(concatenated([each.obs for _, each in ends]), value, *memory)
    steps = np.concatenate([each.step for _, each in ends])
    envs = np.concatenate([slots.plan.width * n + each.env for n, each in ends])
    slots.final_value[steps, envs] = value
