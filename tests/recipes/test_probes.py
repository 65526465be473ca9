"""Environments with one known answer each, which DQN has to find in seconds."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from muster.algos.dqn import DQN, DQNConfig
from muster.data import ReplayBuffer
from muster.envs import make_envs
from muster.framework import Task
from muster.middleware import collect, train
from muster.workers import Collector, Learner

GAMMA = 0.5


class Probe(gym.Env):
    """One or two steps; subclasses say what is seen, earned and where it ends."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1, 1]))
        self.age = 0
        return self.see(), {}


class Constant(Probe):
    """Always the same: a reward of 1, and the end. Q = 1."""

    def see(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        return self.see(), 1.0, True, False, {}


class SeeReward(Probe):
    """The reward is what was seen. Q(s) = s."""

    def see(self):
        return np.array([self.sign], np.float32)

    def step(self, action):
        return self.see(), self.sign, True, False, {}


class Wait(Probe):
    """Two steps, a reward at the second. Q = gamma, then 1."""

    def see(self):
        return np.array([self.age], np.float32)

    def step(self, action):
        self.age += 1
        return self.see(), float(self.age == 2), self.age == 2, False, {}


class Choose(SeeReward):
    """Right where the sign is positive, left where it is not: a reward of 1, else 0."""

    def step(self, action):
        return self.see(), float(action == (self.sign > 0)), True, False, {}


class CutOff(Probe):
    """Never ends, and is cut off after one step: the reward of 1 goes on. Q = 1 / (1 - gamma)."""

    def see(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        return self.see(), 1.0, False, True, {}


@pytest.mark.parametrize(
    "variant", [{}, {"double": False}, {"dueling": True}, {"prioritized": True}]
)
@pytest.mark.parametrize(
    ("env", "values"),
    [
        (Constant, {0.0: (1, 1)}),
        (SeeReward, {-1.0: (-1, -1), 1.0: (1, 1)}),
        (Wait, {0.0: (GAMMA, GAMMA), 1.0: (1, 1)}),
        (Choose, {-1.0: (1, 0), 1.0: (0, 1)}),
        (CutOff, {0.0: (2, 2)}),
    ],
)
def test_dqn_finds_the_value_of(env, values, variant):
    envs = make_envs(env, 4, seed=0)
    spaces = envs.single_observation_space, envs.single_action_space
    cfg = DQNConfig(hidden=(32,), lr=5e-3, gamma=GAMMA, batch_size=32, target_update=25, **variant)
    agent = DQN(cfg, *spaces, seed=0)
    buffer = ReplayBuffer(
        2_000, *spaces, num_envs=4, gamma=GAMMA, prioritized=cfg.prioritized, min_size=100
    )
    task = Task()
    task.use(collect(Collector(agent, envs, steps=8), buffer, lambda step: 1.0))
    task.use(train(Learner(agent), buffer, updates=8, beta=agent.beta))
    task.run(120)
    for seen, expected in values.items():
        q = agent.model(torch.tensor([[seen]])).detach().numpy()[0]
        assert q == pytest.approx(expected, abs=0.1), (seen, q)
