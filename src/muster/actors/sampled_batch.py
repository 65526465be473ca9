"""`SampledBatch`: what a replay buffer in shards draws, put together from the shards' parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.actors.shard import ShardSample, joined
from muster.data import Batch, Transitions
from muster.data.shards import global_weights
from muster.errors import OptionError


@dataclass(slots=True, eq=False)
class SampledBatch(Batch):
    """Transitions of all shards, leading shape [B]. Arrays are own."""

    version: NDArray[np.int64]
    """Of the weights that chose the actions."""
    shard: NDArray[np.int64]
    """Where each row is from; `index` is its number there."""
    generation: NDArray[np.int64]
    """Which life of that shard."""

    def as_dict(self) -> dict[str, Any]:
        """Return the columns under the names that a plain replay buffer would give them.

        `dones` is 1 where an episode terminated: one that was cut off goes on.
        """
        return {
            "cur_states": self.obs,
            "actions": self.action,
            "rewards": self.reward,
            "next_states": self.next_obs,
            "dones": (self.discount == 0).astype(np.float32),
        }


def mixed(
    drawn: dict[int, ShardSample], masses: NDArray[np.float64], beta: float | None
) -> SampledBatch:
    """Return one batch of what several shards drew."""
    batches = [each.batch for each in drawn.values() if each.batch is not None]
    batch = joined(batches)
    sizes = [len(each.index) for each in batches]
    shard = np.repeat(np.fromiter(drawn, np.int64), sizes)
    if beta is not None:
        chance = np.concatenate([each.chance for each in drawn.values()])
        batch.weight = global_weights(shard, chance, masses, beta)
    return SampledBatch(
        batch.obs,
        batch.action,
        batch.reward,
        batch.next_obs,
        batch.discount,
        batch.weight,
        batch.index,
        np.concatenate([each.version for each in drawn.values()]),
        shard,
        np.repeat(np.array([each.generation for each in drawn.values()], np.int64), sizes),
    )


def transitions_of(fields: Mapping[str, Any]) -> Transitions:
    """Return the steps that a dict of arrays holds, or refuse it."""
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    if set(fields) != set(names):
        raise OptionError(
            f"a batch of {sorted(fields)} cannot be stored",
            f"its fields are {', '.join(names)}, of shape [T, N, ...]",
            "buffer.store(collector.collect())",
        )

    def arrays(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: np.asarray(each) for key, each in value.items()}
        return np.asarray(value)

    return Transitions(**{name: arrays(fields[name]) for name in names})
