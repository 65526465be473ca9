"""A gradient of a worker's own rollout: advantages by a slow loop, derivatives by autograd."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from muster.algos.a3c import A3C, A3CConfig
from muster.envs import make_envs
from muster.workers.gradient_worker import GradientWorker

GAMMA, STEPS, ENVS = 0.9, 12, 3


class Ends(gym.Env):
    """Episodes of 5 steps that end by themselves or by a cut, as the seed says."""

    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.ends = int(self.np_random.integers(2))
        return self._see(), {}

    def step(self, action):
        self.t += 1
        over = self.t == 5
        reward = float(self.t + action)
        return self._see(), reward, bool(over and self.ends), bool(over and not self.ends), {}

    def _see(self):
        return np.array([self.t, self.ends], np.float32)


gym.register("GradientEnds-v0", Ends)


@pytest.fixture
def worker():
    envs = make_envs("GradientEnds-v0", ENVS, 1)
    spaces = envs.single_observation_space, envs.single_action_space
    cfg = A3CConfig(rollout=STEPS, gamma=GAMMA, entropy_coef=0.02, value_coef=0.7, hidden=(16,))
    made = GradientWorker(A3C(cfg, *spaces, 2), envs, 1)
    yield made
    made.close()


def test_a_gradient_is_that_of_n_step_advantages(worker):
    """Ended, cut and mid-episode edges: each is followed by what it should be."""
    model, seen = worker.agent.model, []
    collect = worker.collector.collect

    def noting():
        seen.append(collect())
        return seen[-1]

    worker.collector.collect = noting
    made = worker.contribute(0)
    slots, ((cut, episodes, _),) = worker._slots, seen
    assert slots.terminated.any() and slots.truncated.any() and len(episodes) == 2 * ENVS
    with torch.no_grad():
        value = model(torch.from_numpy(slots.obs.reshape(-1, 2)))[1].reshape(STEPS + 1, ENVS)
        value = value.double().numpy()
        final = {
            (int(t), int(env)): float(model(torch.from_numpy(obs[None]))[1])
            for t, env, obs in zip(cut.step, cut.env, cut.obs, strict=True)
        }
    target = np.zeros((STEPS, ENVS))
    for env in range(ENVS):
        follows = value[STEPS, env]
        for t in reversed(range(STEPS)):
            if slots.terminated[t, env]:
                follows = 0.0
            elif slots.truncated[t, env]:
                follows = final[t, env]
            follows = slots.reward[t, env] + GAMMA * follows
            target[t, env] = follows
    advantage = torch.from_numpy((target - value[:STEPS]).reshape(-1)).float()

    outputs, values = model(torch.from_numpy(slots.obs[:STEPS].reshape(-1, 2)))
    policy = torch.distributions.Categorical(logits=outputs)
    logp = policy.log_prob(torch.from_numpy(slots.action.reshape(-1)))
    error = values.reshape(-1) - torch.from_numpy(target.reshape(-1)).float()
    loss = -(logp * advantage).mean() + 0.7 * 0.5 * (error**2).mean()
    (loss - 0.02 * policy.entropy().mean()).backward()
    wanted = np.concatenate([each.grad.numpy().ravel() for each in model.parameters()])
    np.testing.assert_allclose(made.gradient, wanted, atol=3e-5, rtol=3e-4)


def test_a_worker_that_was_saved_goes_on_with_the_same_rollout(worker):
    worker.contribute(0)
    state = worker.state_dict()
    first = worker.contribute(0)
    worker.load_state_dict(state)
    again = worker.contribute(0)
    assert (first.gradient == again.gradient).all() and first.episodes == again.episodes
