"""An environment that asks at the end what it showed at the start."""

import gymnasium as gym
import numpy as np


class Recall(gym.Env):
    """Shows a sign once, then nothing; a reward of 1 if the last action says which it was.

    Who remembers nothing gets 0.5 on average.
    """

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    steps = 6

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign = int(self.np_random.integers(2))
        self.age = 0
        return self._see(), {}

    def step(self, action):
        self.age += 1
        over = self.age == self.steps
        right = over and int(action) == self.sign
        return self._see(), float(right), over, False, {}

    def _see(self):
        """Return the sign, at first only, and whether this is the last step."""
        sign = 2 * self.sign - 1 if self.age == 0 else 0
        return np.array([sign, self.age == self.steps - 1], np.float32)
