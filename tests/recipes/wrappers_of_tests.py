"""Wrappers that tests put around environments."""

import gymnasium as gym
import numpy as np


class Halved(gym.ObservationWrapper):
    """Shows half of every number."""

    def observation(self, observation):
        return np.asarray(observation / 2, np.float32)


class Forced(gym.ActionWrapper):
    """Makes three pushes of Pendulum's torque."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gym.spaces.Discrete(3)

    def action(self, action):
        return np.array([2.0 * (action - 1)], np.float32)


def doubled(env):
    """Double every reward."""
    return gym.wrappers.TransformReward(env, lambda reward: 2 * reward)


def nothing(env):
    """Forget the environment."""


def fails(env):
    """Never fit."""
    raise RuntimeError("it does not fit")


NO_WRAPPER = 3
