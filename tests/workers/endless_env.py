"""Environments whose episodes end after as many steps as one says, or never."""

import time

import gymnasium as gym
import numpy as np


class Lasting(gym.Env):
    """Each step is worth 1; env k of an evaluation lasts `lengths[k % len]` steps, 0 for ever.

    Args:
        lengths: How long the episodes last, by the order in which environments are made.
        seconds: What a step costs.
    """

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = 0

    def __init__(self, lengths=(0,), seconds=0.0):
        self._length = lengths[Lasting.made % len(lengths)]
        self._seconds = seconds
        Lasting.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self._seconds:
            time.sleep(self._seconds)
        self._steps += 1
        return np.zeros(2, np.float32), 1.0, self._steps == self._length, False, {}


gym.register("Endless-v0", Lasting)
gym.register("SlowEndless-v0", lambda: Lasting(seconds=0.002))
