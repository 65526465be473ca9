"""A2C: the policy gradient of a rollout, once, with nothing clipped."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from muster.algos.a2c import A2C, A2CConfig
from muster.nets.policy_net import STATS, Rollout

OBS, ROWS = gym.spaces.Box(-1, 1, (3,), np.float32), 40


@pytest.mark.parametrize(
    "actions", [gym.spaces.Discrete(4), gym.spaces.Box(-1, 1, (2,), np.float32)], ids=["d", "box"]
)
@pytest.mark.parametrize("hidden", [(16,), (300,)], ids=["compiled", "torch"])
def test_the_gradient_is_that_of_the_policy_gradient_loss(actions, hidden):
    cfg = A2CConfig(hidden=hidden, entropy_coef=0.02, value_coef=0.7)
    agent = A2C(cfg, OBS, actions, seed=3)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(ROWS, 3)).astype(np.float32)
    action = np.empty((ROWS, agent.head.width), agent.head.dtype)
    logp, value = np.empty(ROWS, np.float32), np.empty(ROWS, np.float32)
    agent.net.act(obs, agent.noise(rng, (ROWS,), 0), action, logp, value)
    advantage, target = rng.normal(size=(2, ROWS)).astype(np.float32)
    rollout = Rollout(obs, action, logp, value, advantage, target, None, None)
    grad, stats = np.zeros(agent.weights.vector.size, np.float32), np.zeros(len(STATS))
    agent.gradient(rollout, np.arange(ROWS), agent.terms(0, ROWS), grad, stats)

    outputs, values = agent.model(torch.from_numpy(obs))
    if isinstance(actions, gym.spaces.Discrete):
        policy = torch.distributions.Categorical(logits=outputs)
        new_logp, entropy = policy.log_prob(torch.from_numpy(action[:, 0])), policy.entropy()
    else:
        mean, log_std = outputs.chunk(2, dim=1)
        policy = torch.distributions.Normal(mean, log_std.exp())
        new_logp = policy.log_prob(torch.from_numpy(action)).sum(1)
        entropy = policy.entropy().sum(1)
    wanted = -(new_logp * torch.from_numpy(advantage)).mean()
    wanted = wanted + 0.7 * 0.5 * ((values - torch.from_numpy(target)) ** 2).mean()
    wanted = wanted - 0.02 * entropy.mean()
    wanted.backward()
    by_torch = np.concatenate([p.grad.numpy().ravel() for p in agent.model.parameters()])
    np.testing.assert_allclose(grad, by_torch, atol=2e-5, rtol=2e-4)


def test_what_belongs_to_epochs_and_clipping_is_no_option():
    for name in ("epochs", "minibatches", "clip", "target_kl"):
        assert not hasattr(A2CConfig(), name)
