"""Ape-X: how random each environment is, and priorities of actors against a slow loop."""

import numpy as np
import pytest
import torch
from ends_env import Ends

from muster import OptionError
from muster.algos.apex import ApeX, ApexConfig
from muster.algos.dqn import DQN, DQNConfig
from muster.data import PRIORITY, ReplayBuffer
from muster.envs import make_envs
from muster.workers import Collector

GAMMA = 0.9


def make_agent(kind=ApeX, seed=0, **options):
    options = {"hidden": (16, 16), "gamma": GAMMA, **options}
    config = {ApeX: ApexConfig, DQN: DQNConfig}[kind](**options)
    return kind(config, Ends.observation_space, Ends.action_space, seed)


@pytest.mark.parametrize("total", [1, 2, 8, 24])
def test_the_epsilon_of_environment_i_of_n_is_that_of_the_paper(total):
    found = make_agent().epsilon_of(12_345, range(total), total)
    expected = [0.4 ** (1 + 7 * i / (total - 1)) if total > 1 else 0.4 for i in range(total)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_actors_together_have_the_epsilons_of_all_environments():
    agent = make_agent(eps_base=0.5, eps_alpha=3.0)
    parts = [agent.epsilon_of(0, range(first, first + 4), 12) for first in (0, 4, 8)]
    np.testing.assert_array_equal(np.concatenate(parts), agent.epsilon_of(9, range(12), 12))


def test_each_environment_is_as_random_as_its_own_epsilon(rng):
    agent = make_agent()
    obs = np.repeat(rng.normal(size=(1, 3)).astype(np.float32), 3, axis=0)
    best = agent.act(obs[:1])[0]
    drawn = np.stack([agent.explore(obs, np.array([0.0, 0.3, 1.0])) for _ in range(5_000)])
    assert (drawn[:, 0] == best).all()
    assert (drawn[:, 1] == best).mean() == pytest.approx(0.7 + 0.1, abs=0.025)
    assert (drawn[:, 2] == best).mean() == pytest.approx(1 / 3, abs=0.025)
    assert set(drawn[:, 2].tolist()) == {0, 1, 2}


def slow_priority(agent, block, t, env, n):
    """Return the TD error of one step, by torch and a plain loop."""

    def q(obs):
        with torch.no_grad():
            return agent.model(torch.from_numpy(obs[None]))[0].numpy()

    total, next_obs = 0.0, block.next_obs
    for k in range(n):
        now = t + k
        total += GAMMA**k * block.reward[now, env]
        if block.terminated[now, env]:
            break
        if block.truncated[now, env] or k + 1 == n or now + 1 == len(block.reward):
            total += GAMMA ** (k + 1) * q(next_obs[now, env]).max()
            break
    return abs(q(block.obs[t, env])[block.action[t, env]] - total)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_priorities_of_an_actor_are_the_td_errors_of_a_slow_loop(n):
    agent = make_agent(n_step=n)
    collector = Collector(agent, make_envs(Ends, 3, seed=1), steps=11)
    kinds = set()
    for _ in range(4):
        block = collector.collect(policy_kwargs={"eps": np.array([0.0, 0.5, 1.0])})
        kinds |= set(zip(block.terminated.flat, block.truncated.flat, strict=True))
        expected = [[slow_priority(agent, block, t, env, n) for env in range(3)] for t in range(11)]
        np.testing.assert_allclose(block.columns["priority"], expected, rtol=1e-4, atol=1e-5)
    assert len(kinds) == 4, "terminated, truncated, both and neither were there"


def test_what_was_acted_on_is_not_evaluated_again(monkeypatch):
    agent = make_agent()
    collector = Collector(agent, make_envs(Ends, 2, seed=0), steps=6)
    rows, predict = [], agent._net.predict

    def count(obs):
        rows.append(len(obs))
        return predict(obs)

    monkeypatch.setattr(agent._net, "predict", count)
    block = collector.collect(policy_kwargs={"eps": 1.0})
    cut = int((block.truncated & ~block.terminated).sum())
    assert rows == [2] * 6 + [2, cut] and cut > 0


def test_it_learns_as_dqn_with_the_same_options_does(make_batch):
    options = {"batch_size": 8, "double": True, "dueling": True, "lr": 1e-3, "max_grad_norm": 10.0}
    agents = [make_agent(kind, target_update=2, **options) for kind in (ApeX, DQN)]
    for _ in range(5):
        batch = make_batch(8, n_obs=3, actions=3)
        assert agents[0].update(batch) == agents[1].update(batch)
        np.testing.assert_array_equal(agents[0].td_error, agents[1].td_error)
    assert agents[0].policy_sha256() == agents[1].policy_sha256()


def test_a_late_priority_does_not_touch_what_has_taken_the_place():
    agent = make_agent()
    collector = Collector(agent, make_envs(Ends, 2, seed=0), steps=5)
    spaces_ = Ends.observation_space, Ends.action_space
    buffer = ReplayBuffer(
        10, *spaces_, num_envs=2, prioritized=True, alpha=1.0, columns=[PRIORITY], n_step=3
    )
    buffer.push(collector.collect())
    old = buffer.sample(10)
    buffer.push(collector.collect())
    expected = buffer.mass
    buffer.update_priorities(old.index, np.full(10, 1_000.0))
    assert buffer.mass == expected


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"eps_base": 1.5}, "eps_base=1.5 is not possible"),
        ({"eps_alpha": -1.0}, "eps_alpha=-1.0 is not possible"),
        ({"batch_size": 0}, "batch_size=0 is not possible"),
    ],
)
def test_options_without_sense_are_refused(options, what):
    with pytest.raises(OptionError, match=what):
        ApexConfig(**options)
