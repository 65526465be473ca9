"""CartPole-v1 that shows positions and no velocities: what is to be done has to be remembered.

muster train impala benchmarks.hidden_cartpole:HiddenCartPole-v0 --model lstm
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

SHOWN = [0, 2]
"""Where the cart is, and the angle of the pole."""


class HiddenCartPole(gym.ObservationWrapper[Any, Any, Any]):
    """Leaves out the velocities of cart and pole."""

    def __init__(self, **options: Any) -> None:
        super().__init__(CartPoleEnv(**options))
        space: Any = self.env.observation_space
        self.observation_space = gym.spaces.Box(space.low[SHOWN], space.high[SHOWN])

    def observation(self, observation: Any) -> Any:
        """Return the two positions of four numbers."""
        return np.asarray(observation)[SHOWN]


gym.register("HiddenCartPole-v0", HiddenCartPole, max_episode_steps=500)
