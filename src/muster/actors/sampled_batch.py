"""`SampledBatch`: a batch from a sharded replay buffer, also under commonly used names.

ShardOfSamples.draw -> Batch, with the column `terminated` -> all shards together -> SampledBatch
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muster.data import VERSION, Batch
from muster.data.shard_state import Answer, ShardState

_TERMINATED = "terminated"


class ShardOfSamples(ShardState):
    """A shard whose batches say which transitions end with the termination of their episode."""

    def draw(self, where: NDArray[np.float64]) -> Answer:
        """Read the items at these fractions, in [0, 1), of the shard's mass."""
        answer = super().draw(where)
        if answer.batch is not None:
            answer.batch.columns[_TERMINATED] = self._buffer.terminated(answer.batch.index)
        return answer


@dataclass(slots=True, eq=False)
class SampledBatch(Batch):
    """Transitions of all shards, leading shape [B]. It owns its arrays."""

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the same arrays as a SampledBatch."""
        return cls(**{each.name: getattr(batch, each.name) for each in fields(batch)})

    @property
    def version(self) -> NDArray[np.int64]:
        """Versions of the weights that chose the actions."""
        found: NDArray[np.int64] = self.columns[VERSION.name]
        return found

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Whether the episode terminated within the steps of each transition."""
        found: NDArray[np.bool_] = self.columns[_TERMINATED]
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the columns under the names of a plain replay buffer.

        `dones` is 1 where an episode terminated; a truncated episode has 0.
        """
        return {
            "cur_states": self.obs,
            "actions": self.action,
            "rewards": self.reward,
            "next_states": self.next_obs,
            "dones": self.terminated.astype(np.float32),
        }
