"""How an agent acts, what its state is, and that the same seed gives the same bits."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from muster import OptionError
from muster.algos import DQN, DQNConfig, q_learner
from muster.nets import ModelError, adam, fused_plan, register_model
from muster.rl_utils.losses.td import td_loss_numpy

BOX = spaces.Box(-1, 1, (4,))
THREE = spaces.Discrete(3)


def _agent(seed=0, **options):
    return DQN(DQNConfig(hidden=(16, 16), **options), BOX, THREE, seed)


@pytest.mark.parametrize("space", [spaces.Box(-2, 2, (1,)), spaces.MultiDiscrete([2, 2])])
def test_actions_that_cannot_be_counted_are_refused(space):
    with pytest.raises(OptionError) as caught:
        DQN(DQNConfig(), BOX, space)
    assert str(caught.value).startswith(f"DQN needs Discrete actions; got {space}")
    assert "try: muster train ppo" in str(caught.value)


def test_greedy_actions_are_the_best_ones(rng):
    agent = _agent()
    obs = rng.normal(size=(50, 4)).astype(np.float32)
    with torch.no_grad():
        expected = agent.model(torch.from_numpy(obs)).argmax(1).numpy()
    action = agent.act(obs)
    assert action.dtype == np.int64
    assert np.array_equal(action, expected)
    assert len(set(action.tolist())) > 1


def test_epsilon_is_the_share_of_random_actions(rng):
    agent = _agent()
    obs = np.repeat(rng.normal(size=(1, 4)).astype(np.float32), 30_000, axis=0)
    best = agent.act(obs[:1])[0]
    for epsilon in (0.3, 1.0):
        counts = np.bincount(agent.act(obs, epsilon), minlength=3) / len(obs)
        expected = np.full(3, epsilon / 3)
        expected[best] += 1 - epsilon
        assert counts == pytest.approx(expected, abs=0.015)


def test_greedy_acting_draws_no_random_number(rng):
    agent = _agent()
    obs = rng.normal(size=(8, 4)).astype(np.float32)
    before = agent.parts()["exploration"]
    agent.act(obs)
    assert agent.parts()["exploration"] == before
    agent.act(obs, 0.5)
    assert agent.parts()["exploration"] != before


def test_actions_may_begin_anywhere(rng):
    agent = DQN(DQNConfig(hidden=(16, 16)), BOX, spaces.Discrete(3, start=-1))
    obs = rng.normal(size=(60, 4)).astype(np.float32)
    assert np.array_equal(agent.act(obs), _agent().act(obs) - 1)
    assert set(agent.act(obs, 1.0).tolist()) == {-1, 0, 1}


@pytest.mark.parametrize("shape", [(4,), (), (2, 5), (2, 4, 1)])
def test_what_is_no_batch_of_observations_is_refused(shape):
    with pytest.raises(OptionError, match="act got observations of shape"):
        _agent().act(np.zeros(shape, np.float32))


def test_one_hot_and_dict_observations_are_acted_on():
    assert DQN(DQNConfig(), spaces.Discrete(5), THREE).act(np.array([0, 4])).shape == (2,)
    space = spaces.Dict(a=BOX, b=spaces.Discrete(2))
    obs = {"a": np.zeros((7, 4), np.float32), "b": np.ones(7, np.int64)}
    assert DQN(DQNConfig(), space, THREE).act(obs, 0.5).shape == (7,)


def test_epsilon_and_beta_follow_the_config():
    agent = _agent(eps_start=0.9, eps_end=0.1, eps_decay=100, beta_start=0.2, horizon=1000)
    assert [agent.epsilon(step) for step in (0, 50, 100, 500)] == pytest.approx(
        [0.9, 0.5, 0.1, 0.1]
    )
    assert [agent.beta(step) for step in (0, 500, 1000, 5000)] == pytest.approx([0.2, 0.6, 1, 1])
    curved = _agent(eps_start=1, eps_end=0, eps_decay=100, eps_schedule="exp")
    assert curved.epsilon(100) == pytest.approx(0.36787944)


def test_settings_and_results_can_be_asked_for_by_name(make_batch):
    agent = _agent(batch_size=7)
    assert agent.get_attribute("batch_size") == 7
    agent.update(make_batch(5, actions=3))
    assert agent.get_attribute("td_error").shape == (5,)


def _plain(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, str, np.ndarray)


def test_a_state_is_plain_values_and_arrays():
    state = _agent().state_dict()
    assert set(state) == {"policy", "target", "optimizer", "exploration", "counters"}
    assert _plain(state)


@pytest.mark.parametrize("options", [{}, {"dueling": True, "tau": 0.5}])
def test_going_on_from_a_state_is_going_on(rng, make_batch, options):
    agent, other = (_agent(seed, target_update=3, **options) for seed in (0, 1))
    obs = rng.normal(size=(8, 4)).astype(np.float32)
    for _ in range(5):
        agent.update(make_batch(16, actions=3))
        agent.act(obs, 0.5)
    state = agent.state_dict()
    rest = make_batch(7, 16, actions=3)
    agent.update_many(rest)
    actions = [agent.act(obs, 0.5).tolist() for _ in range(5)]
    other.load_state_dict(state)
    other.update_many(rest)
    assert [other.act(obs, 0.5).tolist() for _ in range(5)] == actions
    assert other.policy_sha256() == agent.policy_sha256()
    assert other.train_iter == agent.train_iter == 12


def test_a_state_is_a_copy(rng, make_batch):
    agent = _agent()
    state = agent.state_dict()
    digest = agent.policy_sha256()
    agent.update(make_batch(16, actions=3))
    agent.act(rng.normal(size=(8, 4)).astype(np.float32), 0.5)
    assert agent.policy_sha256() != digest
    agent.load_state_dict(state)
    assert agent.policy_sha256() == digest
    assert agent.train_iter == 0


def test_the_policy_alone_is_enough_to_act(rng, make_batch):
    agent, other = _agent(0), _agent(1)
    agent.update(make_batch(16, actions=3))
    obs = rng.normal(size=(50, 4)).astype(np.float32)
    other.load_parts({"policy": agent.parts()["policy"]})
    assert np.array_equal(other.act(obs), agent.act(obs))
    target = other.parts()["target"]
    assert all(np.array_equal(target[n], x) for n, x in agent.parts()["policy"].items())


def test_parts_that_do_not_fit_are_refused():
    agent = _agent()
    parts = agent.parts()
    with pytest.raises(OptionError, match="are not those of a DQN agent"):
        agent.load_parts({"target": parts["target"]})
    with pytest.raises(OptionError, match="are not those of a DQN agent"):
        agent.load_parts({**parts, "replay": {}})
    with pytest.raises(OptionError, match="has no optimizer"):
        agent.load_state_dict({name: x for name, x in parts.items() if name != "optimizer"})
    with pytest.raises(ModelError, match="do not fit the network"):
        _agent(dueling=True).load_parts(parts)


def test_the_seed_alone_decides_weights_and_exploration(rng):
    obs = rng.normal(size=(8, 4)).astype(np.float32)
    torch.manual_seed(1)
    np.random.seed(1)
    one = _agent(7)
    torch.manual_seed(2)
    np.random.seed(2)
    same, other = _agent(7), _agent(8)
    assert one.policy_sha256() == same.policy_sha256() != other.policy_sha256()
    # All actions random: what differs then is not the network.
    sequences = [[a.act(obs, 1.0).tolist() for _ in range(5)] for a in (one, same, other)]
    assert sequences[0] == sequences[1] != sequences[2]


def test_nothing_global_is_moved(rng, make_batch):
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), torch.get_num_threads()
    agent = _agent()
    agent.act(rng.normal(size=(8, 4)).astype(np.float32), 0.5)
    agent.update(make_batch(16, actions=3))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.get_num_threads() == before[2]


def test_a_registered_model_is_asked_for_by_name():
    class Tiny(nn.Module):
        def __init__(self, obs_space, n_actions):
            super().__init__()
            self.layer = nn.Linear(obs_space.shape[0], n_actions)

        def forward(self, obs):
            return self.layer(obs)

    register_model("tiny_for_dqn", Tiny)
    assert isinstance(DQN(DQNConfig(model="tiny_for_dqn"), BOX, THREE).model, Tiny)


RUN = """
import numpy as np, torch
from types import SimpleNamespace
from gymnasium import spaces
from torch import nn
from muster.algos import DQN, DQNConfig
from muster.nets import build_q_network

torch.set_num_threads(1)
rng = np.random.default_rng(0)
junk = [np.empty(int(n)) for n in np.random.default_rng().integers(1, 999, 50)]  # other addresses


class Opaque(nn.Sequential):
    def forward(self, obs):
        return super().forward(obs)


def batch(*shape):
    f = np.float32
    return SimpleNamespace(
        obs=rng.normal(size=(*shape, 4)).astype(f), action=rng.integers(0, 2, shape),
        reward=rng.normal(size=shape).astype(f), next_obs=rng.normal(size=(*shape, 4)).astype(f),
        discount=np.full(shape, 0.99, f), weight=np.ones(shape, f))


BOX = spaces.Box(-1, 1, (4,))
for hidden, dueling, model in [((64, 64), True, None), ((256, 256), False, None),
                               ((64, 64), False, lambda s, n: Opaque(build_q_network(s, n)))]:
    cfg = DQNConfig(hidden=hidden, dueling=dueling, target_update=4, lr=1e-3)
    agent = DQN(cfg, BOX, spaces.Discrete(2), seed=3, model=model)
    metrics = agent.update_many(batch(20, 64))
    actions = agent.act(rng.normal(size=(8, 4)).astype(np.float32), 0.5)
    print(agent.policy_sha256(), metrics["loss"], actions.tolist())
"""


def test_a_fresh_process_comes_to_the_same_bits(capsys):
    fresh = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=500)
    exec(RUN, {})
    assert capsys.readouterr().out == fresh.stdout
    assert len(fresh.stdout.splitlines()) == 3


def test_numpy_alone_comes_to_the_same_numbers(capsys, monkeypatch):
    exec(RUN, {})
    monkeypatch.setattr(fused_plan, "FUSED", False)
    monkeypatch.setattr(adam, "adam", adam.adam_numpy)
    monkeypatch.setattr(q_learner, "td_loss", td_loss_numpy)
    exec(RUN, {})
    lines = capsys.readouterr().out.splitlines()
    losses = [float(line.split()[1]) for line in lines]
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-4)
