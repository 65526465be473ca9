"""A long corridor of doors, of which all but one are walls at each step."""

import gymnasium as gym
import numpy as np

DOORS = 64
LENGTH = 8


class Corridor(gym.Env):
    """Behind each step one of 64 doors is open; to try another one ends the episode with -1."""

    action_space = gym.spaces.Discrete(DOORS)
    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self._see()

    def step(self, action):
        if not self.mask[action]:
            return (*self._see()[:1], -1.0, True, False, {"action_mask": self.mask})
        self.at += 1
        obs, info = self._see()
        return obs, 1.0, False, self.at == LENGTH, info

    def _see(self):
        # Which door it is cannot be told from what is seen: only the mask says it.
        self.mask = np.zeros(DOORS, np.int8)
        self.mask[self.np_random.integers(DOORS)] = 1
        return np.array([self.at / LENGTH], np.float32), {"action_mask": self.mask.copy()}


class Blind(Corridor):
    """The same, without masks."""

    def reset(self, **options):
        return super().reset(**options)[0], {}

    def step(self, action):
        return (*super().step(action)[:4], {})


gym.register("Corridor-v0", Corridor)
gym.register("Blind-v0", Blind)
