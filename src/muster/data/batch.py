"""What goes into a replay buffer and what comes out: structures of arrays, no objects per step."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Obs = Array | dict[str, Array]
"""Observations: one array, or one per key for a Dict space."""


@dataclass(slots=True, eq=False)
class Transitions:
    """`T` steps of `N` environments, as a collector returns them. Leading shape [T, N]."""

    obs: Obs
    action: Array
    reward: Array
    """As the environment gave it."""
    next_obs: Obs
    """The true next observation: at an episode's end its final one, not that of the next reset."""
    terminated: Array
    """Bool: the episode ended, and nothing can be earned after it."""
    truncated: Array
    """Bool: the episode was cut off, by a time limit for instance. Both may be set."""

    def __len__(self) -> int:
        """Return the number of transitions, T * N."""
        return int(self.terminated.size)


@dataclass(slots=True, eq=False)
class Batch:
    """Sampled transitions, leading shape [B] or, from `sample_many`, [count, B]. Arrays are own."""

    obs: Obs
    action: Array
    """int64 for Discrete and MultiDiscrete, float32 for Box."""
    reward: Array
    """float32, the discounted sum over up to `n_step` steps."""
    next_obs: Obs
    """The observation after the last of these steps."""
    discount: Array
    """float32, what the value of `next_obs` counts: gamma^k after k steps, 0 where terminated."""
    weight: Array
    """float32, importance weight; 1 where replay is uniform."""
    index: Array
    """int64, the transition's number since the buffer was made: for `update_priorities`."""
