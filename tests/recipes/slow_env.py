"""An environment whose steps take a while, so that a run lasts as long as a test needs it."""

import time

import gymnasium as gym


class TakesTime(gym.Wrapper):
    """Each step takes 5 ms more."""

    def step(self, action):
        time.sleep(0.005)
        return self.env.step(action)
