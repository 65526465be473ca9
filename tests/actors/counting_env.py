"""An environment that shows which step of which episode it is, and ends when it is told to."""

import gymnasium as gym
import numpy as np


class Counting(gym.Env):
    """Observation: (start of this episode, steps so far). Terminates after `length` steps."""

    def __init__(self, length=10, breaks_at=None):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gym.spaces.Discrete(3)
        self.length, self.breaks_at = length, breaks_at
        self.total = 0

    def _obs(self):
        return np.array([self.start, self.steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.steps = self.np_random.random(), 0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        self.total += 1
        if self.total == self.breaks_at:
            raise ValueError("the cart fell off the table")
        return self._obs(), float(action), self.steps == self.length, False, {}
