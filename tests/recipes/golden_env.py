"""An image environment of the golden runs: which half of the picture is bright?"""

import gymnasium as gym
import numpy as np


class Halves(gym.Env):
    """Ten steps; each pays 1 for naming the bright half."""

    observation_space = gym.spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        reward = float(action == self.side)
        return self._look(), reward, self.steps == 10, False, {}

    def _look(self):
        self.side = int(self.np_random.integers(2))
        image = np.zeros((36, 40, 3), np.uint8)
        image[:, 20 * self.side : 20 * self.side + 20] = 200
        return image


gym.register("Halves-v0", Halves)
