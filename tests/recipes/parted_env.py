"""Environments whose actions have several parts: each checks that it gets its own form."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTH = 8

SPACES = {
    "Binary": spaces.MultiBinary(3),
    "Grid": spaces.MultiBinary([2, 2]),
    "Pair": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
    "Named": spaces.Dict(
        {
            "gear": spaces.Discrete(3),
            "lamps": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4])]),
        }
    ),
    "Arms": spaces.Tuple(
        [spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 3, (1, 2), np.float64)]
    ),
    "Limbs": spaces.Dict({"arm": spaces.Box(-1, 1, (1,)), "leg": spaces.Box(-2, 2, (2,))}),
}


class Parted(gym.Env):
    """Ends with an error if an action is not of its space."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, kind):
        self.action_space = SPACES[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.at += 1
        size = float(np.sum(spaces.flatten(self.action_space, action)))
        return self._see(), size, False, self.at == LENGTH, {}

    def _see(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Locked(Parted):
    """Of three switches the first must be on; says so with a mask."""

    mask = np.array([0, 1, 1, 1, 1, 1], np.int8)

    def __init__(self):
        super().__init__("Binary")

    def reset(self, **options):
        return super().reset(**options)[0], {"action_mask": self.mask}

    def step(self, action):
        assert action[0] == 1
        return (*super().step(action)[:4], {"action_mask": self.mask})


for _kind in SPACES:
    gym.register(f"{_kind}Parted-v0", Parted, kwargs={"kind": _kind})
gym.register("Locked-v0", Locked)
gym.register(
    "MixedParted-v0",
    lambda: gym.wrappers.TransformAction(
        gym.make("CartPole-v1"),
        lambda action: 0,
        spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))]),
    ),
)
