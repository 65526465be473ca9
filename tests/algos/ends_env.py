"""An environment whose episodes end in every way, and soon."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Ends(gym.Env):
    """Episodes of five lengths that end in turn by a terminal, by a cut, and by both at once."""

    observation_space = spaces.Box(-9, 9, (3,), np.float32)
    action_space = spaces.Discrete(3)
    lengths = (1, 4, 7, 2, 5)

    def __init__(self):
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.left = self.lengths[self.episode % 5]
        return self._see(), {}

    def step(self, action):
        self.left -= 1
        how = self.episode % 3 if self.left == 0 else None
        return self._see(), self.np_random.normal(), how in (0, 2), how in (1, 2), {}

    def _see(self):
        return self.np_random.normal(size=3).astype(np.float32)
