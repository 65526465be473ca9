"""Environments that number their steps, so that what is lost or doubled on its way is seen."""

import os
from typing import Any

import gymnasium as gym
import numpy as np

LENGTH = 50
"""Steps of an episode."""


class Numbered(gym.Env[Any, Any]):
    """Shows who it is and which step this is: each environment object has a number of its own."""

    observation_space = gym.spaces.Box(0, 2.0**24, (2,), np.float32)

    def __init__(self, actions: str = "Box") -> None:
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(2)
        if actions == "Box":
            self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self._name = int.from_bytes(os.urandom(3), "big")
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the numbers go on."""
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count."""
        self._steps += 1
        return self._see(), 0.0, False, self._steps % LENGTH == 0, {}

    def _see(self) -> Any:
        return np.array([self._name, self._steps], np.float32)


gym.register("Numbered-v0", lambda **options: Numbered())
gym.register("NumberedDiscrete-v0", lambda **options: Numbered("Discrete"))
