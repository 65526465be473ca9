"""Environments of any number of observations that cost next to nothing: what is timed is learning.

`gymnasium.make("benchmarks.peers.shaped_env:Shaped17-v0")` has 17 observations and two actions.
Observations are rows of a fixed table in turn, an episode is 200 steps, and the reward says whether
the action was the sign of the first observation: so there is something to learn.
"""

from typing import Any

import gymnasium
import numpy as np

SIZES = (4, 17, 376)
LENGTH, ROWS = 200, 1024


class Shaped(gymnasium.Env[Any, Any]):
    """One of them.

    Args:
        size: Numbers of an observation.
    """

    def __init__(self, size: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-10, 10, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._table = np.random.default_rng(size).normal(size=(ROWS, size)).astype(np.float32)
        self._at = self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin at a row that the seed decides."""
        super().reset(seed=seed)
        self._at = int(self.np_random.integers(ROWS))
        self._steps = 0
        return self._table[self._at], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go on to the next row."""
        reward = float((self._table[self._at, 0] > 0) == bool(action))
        self._at = (self._at + 1) % ROWS
        self._steps += 1
        return self._table[self._at], reward, False, self._steps >= LENGTH, {}


for _size in SIZES:
    gymnasium.register(
        f"Shaped{_size}-v0", entry_point=f"{__name__}:Shaped", kwargs={"size": _size}
    )
