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


class Telling(gym.Wrapper):
    """Reports metrics in every step, and at the end of an episode its length as its success."""

    def reset(self, **options):
        self.length = 0
        return self.env.reset(**options)

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        self.length += 1
        info = {"metrics": {"pushes": float(action), "alive": np.float32(not terminated)}}
        info["is_success"] = self.length if terminated or truncated else "not over"
        return obs, reward, terminated, truncated, info


class Colourful(gym.Wrapper):
    """Reports metrics of which one is no number."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, reward, terminated, truncated, {"metrics": {"colour": "red", "fine": 1}}


def nothing(env):
    """Forget the environment."""


def fails(env):
    """Never fit."""
    raise RuntimeError("it does not fit")


NO_WRAPPER = 3
