"""Environments of every kind of observation and action, each of a few steps."""

import gymnasium as gym
import numpy as np


class Short(gym.Env):
    """Shows something drawn from its space; an episode is seven steps."""

    def __init__(self, obs, act):
        self.observation_space, self.action_space = obs, act

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed % 2**32)
        self.age = 0
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.age += 1
        return self._see(), float(np.sum(action)), False, self.age == 7, {}

    def _see(self):
        return self.observation_space.sample()


def floats(*shape):
    return gym.spaces.Box(-2, 2, shape, np.float32)


def masked():
    env = Short(
        gym.spaces.Dict({"seen": floats(3), "action_mask": gym.spaces.MultiBinary(5)}),
        gym.spaces.MultiDiscrete([2, 3]),
    )
    draw = env._see

    def see():
        obs = draw()
        obs["action_mask"][[1, 4]] = 1
        return obs

    env._see = see
    return env


def parts():
    spaces = {
        "action": floats(2, 2),  # has the name of the output
        "image": gym.spaces.Box(0, 255, (12, 12, 3), np.uint8),
        "memory": gym.spaces.Discrete(4, start=2),  # and this that of an input
        "switches": gym.spaces.MultiBinary(3),
    }
    return Short(gym.spaces.Dict(spaces), gym.spaces.Discrete(3, start=5))


def uneven():
    low, high = np.array([-1, 0, -np.inf]), np.array([0.01, 7, np.inf])
    return Short(floats(4), gym.spaces.Box(low, high, dtype=np.float64))


def grid():
    high = np.array([[1, 2], [3, 4]], np.float32)
    return Short(floats(2), gym.spaces.Box(-high, high))


def images():
    return Short(gym.spaces.Box(0, 255, (16, 16), np.uint8), gym.spaces.Discrete(4))


def choices():
    return Short(gym.spaces.MultiDiscrete([3, 4]), gym.spaces.MultiDiscrete([[2, 3], [4, 2]]))


for make in (masked, parts, uneven, grid, images, choices):
    gym.register(f"X{make.__name__.capitalize()}-v0", make)
