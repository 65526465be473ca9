"""CartPole-v1 that shows positions alone, so that who sees one observation cannot balance it.

    muster train r2d2 benchmarks.envs_without_velocity:CartPoleNoVelocity-v0

What is hidden follows from two observations in a row: a policy that remembers can do it, and one
that does not cannot.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import WrapperSpec
from numpy.typing import NDArray

SHOWN = [0, 2]
"""Of the four numbers: where the cart is, and how far the pole leans."""


class HideVelocity(gym.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]]):
    """Leaves the velocities of CartPole out."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(
            space.low[SHOWN], space.high[SHOWN], dtype=np.float32
        )

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the numbers that are shown."""
        return observation[SHOWN]


gym.register(
    "CartPoleNoVelocity-v0",
    entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    max_episode_steps=500,
    additional_wrappers=(WrapperSpec("HideVelocity", f"{__name__}:HideVelocity", {}),),
)
