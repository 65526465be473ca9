"""Small environments whose every step is known, and some that break a rule."""

import gymnasium as gym
import numpy as np


class Scripted(gym.Env):
    """Shows [episode, step]; its episodes end as the script says.

    Args:
        script: For each episode its length and how it ends: "terminated", "truncated" or "both".
            After the last one it begins again.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, script=((3, "terminated"),)):
        self.script = script
        self.episode = -1
        self.seeds = []
        self.actions = []
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.count = 0
        return self.show(), {}

    def step(self, action):
        self.actions.append(action)
        self.count += 1
        length, how = self.script[self.episode % len(self.script)]
        ended = self.count == length
        return (
            self.show(),
            self.reward(),
            ended and how in ("terminated", "both"),
            ended and how in ("truncated", "both"),
            {"text": "an info may hold anything", "object": object()},
        )

    def show(self):
        return np.array([self.episode, self.count], np.float32)

    def reward(self):
        return 1.0

    def close(self):
        self.closed += 1


class Walk(gym.Env):
    """A random walk that is a function of its reset seed and its actions: can be restored."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, length=10):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.place = self.np_random.normal()
        return np.array([self.place]), {}

    def step(self, action):
        self.count += 1
        self.place += int(action) - 1 + self.np_random.normal()
        return np.array([self.place]), self.place, self.count == self.length, False, {}


class Showing(Scripted):
    """An env with any observation space, which shows the given values one after the other."""

    def __init__(self, space, values):
        super().__init__(((10_000, "truncated"),))
        self.observation_space = space
        self.values = values

    def show(self):
        return self.values[self.count % len(self.values)]


class Acting(Scripted):
    """An env with any action space; `actions` remembers what it was given."""

    def __init__(self, space):
        super().__init__(((10_000, "truncated"),))
        self.action_space = space


def one_of_many(make_usual, make_odd, odd):
    """Return a factory whose env number `odd` is made differently."""
    made = []

    def factory():
        made.append(make_odd() if len(made) == odd else make_usual())
        return made[-1]

    factory.made = made
    return factory
