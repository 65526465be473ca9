"""An environment whose steps can be told apart, and IMPALA that writes down what it learns from."""

import os
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

from muster.algos.base import Algorithm
from muster.algos.impala import IMPALA, IMPALAConfig

NOTES, SLOW = "STREAM_WITNESS_NOTES", "STREAM_WITNESS_SLOW"
"""A file; and `learner` or `actor`, which is then ten times as slow or more."""
_made = 0


def dawdle(seconds):
    """Compute nothing for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Numbered(gym.Env):
    """Shows which process it is of, which environment there, and the number of its step."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self):
        global _made
        _made += 1
        self.name = (float(os.getpid()), float(_made))
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action):
        if os.environ.get(SLOW) == "actor":
            dawdle(0.0005)
        self.steps += 1
        ended = self.steps % 7 == 0
        return self._see(), 1.0, ended and self.steps % 2 == 0, ended and self.steps % 2 == 1, {}

    def _see(self):
        return np.array([*self.name, self.steps], np.float32)


class Witness(IMPALA):
    """Notes every row that it learns from."""

    def correct(self, slots, logp):
        if os.environ.get(SLOW) == "learner":
            dawdle(0.02)
        with Path(os.environ[NOTES]).open("ab") as file:
            slots.obs[:-1].tofile(file)
        return super().correct(slots, logp)


gym.register("Numbered-v0", Numbered)
witness = Algorithm(IMPALAConfig, Witness)
