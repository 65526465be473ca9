"""An update of SAC, with every switch, against SAC as one would write it in plain torch."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn import functional

from muster.algos.batches import BatchSlice
from muster.algos.sac import SAC
from muster.algos.sac_config import SACConfig
from muster.errors import OptionError
from muster.nets import NonFiniteError
from muster.nets.q_network import as_tensors
from muster.nets.tile import FUSED

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
SMALL = SACConfig(
    hidden=(32, 32), batch_size=16, lr_actor=1e-3, lr_critic=1e-3, lr_temperature=1e-2
)

KINDS = {
    "sac": {},
    "fixed temperature": {"auto_temperature": False, "temperature": 0.2},
    "redq": {"critics": 5},
    "one critic": {"critics": 1, "target_critics": 1},
    "layer norm": {"layer_norm": True},
    "tqc": {"quantiles": 7, "drop_quantiles": 2, "critics": 3, "target_critics": 3},
    "crossq": {"batch_norm": True, "adam_beta1": 0.5},
    "policy every other time": {"policy_every": 2},
}


@pytest.fixture
def make_transitions(make_batch):
    def make(*shape, obs=OBS):
        batch = make_batch(*shape, n_obs=3)
        rng = np.random.default_rng(int(abs(batch.reward).sum() * 1e4))
        batch.action = rng.uniform(ACTIONS.low, ACTIONS.high, (*shape, 2)).astype(np.float32)
        return batch

    return make


class PlainSAC:
    """SAC as papers have it: torch modules, torch optimisers, autograd. Draws like the agent."""

    def __init__(self, agent):
        cfg = self.cfg = agent.cfg
        self.actor = copy.deepcopy(agent.model)
        self.critics = [copy.deepcopy(critic) for critic in agent.critics.module.members]
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.tensor([math.log(cfg.temperature)], requires_grad=True)
        adam = {"betas": (cfg.adam_beta1, 0.999)}
        self.by_actor = torch.optim.Adam(self.actor.parameters(), cfg.lr_actor, **adam)
        self.by_alpha = torch.optim.Adam([self.log_alpha], cfg.lr_temperature, **adam)
        self.by_critic = [
            torch.optim.Adam(c.parameters(), cfg.lr_critic, **adam) for c in self.critics
        ]
        self.rng = copy.deepcopy(agent._rng_updates)
        self.updates = 0

    def sample(self, obs):
        mean, log_std = self.actor(obs).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        noise = torch.from_numpy(self.rng.standard_normal(tuple(mean.shape), np.float32))
        u = normal.loc + normal.scale * noise
        logp = normal.log_prob(u) - 2 * (math.log(2) - u - functional.softplus(-2 * u))
        return u.tanh(), logp.sum(1)

    def loss(self, values, target, weight):
        if not self.cfg.quantiles:
            return 0.5 * (weight * (values - target).pow(2).squeeze(1)).mean()
        count = values.shape[1]
        tau = (torch.arange(count) + 0.5)[None, :, None] / count
        u = target[:, None, :] - values[:, :, None]
        pairs = (tau - (u < 0).float()).abs() * functional.huber_loss(
            values[:, :, None].expand_as(u), target[:, None, :].expand_as(u), reduction="none"
        )
        return (weight * pairs.mean((1, 2))).mean()

    def update(self, batch):
        cfg = self.cfg
        column = {n: torch.from_numpy(getattr(batch, n)) for n in ("reward", "discount", "weight")}
        obs, next_obs = as_tensors(batch.obs), as_tensors(batch.next_obs)
        low, high = torch.from_numpy(ACTIONS.low), torch.from_numpy(ACTIONS.high)
        action = 2 * (torch.from_numpy(batch.action) - low) / (high - low) - 1
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_logp = self.sample(next_obs)
        if cfg.batch_norm:
            for critic in self.critics:
                critic.train()
            both = [
                c((torch.cat([obs, next_obs]), torch.cat([action, next_action]))).chunk(2)
                for c in self.critics
            ]
            values, following = [b[0] for b in both], [b[1].detach() for b in both]
        else:
            values = [c((obs, action)) for c in self.critics]
            with torch.no_grad():
                following = [t((next_obs, next_action)) for t in self.targets]
        if cfg.quantiles:
            kept = cfg.critics * (cfg.quantiles - cfg.drop_quantiles)
            after = torch.cat(following, 1).sort(dim=1).values[:, :kept]
        else:
            if cfg.target_critics < cfg.critics:
                some = self.rng.choice(cfg.critics, cfg.target_critics, replace=False)
                following = [following[k] for k in some]
            after = torch.stack(following).min(0).values
        soft = after - alpha * next_logp[:, None]
        target = column["reward"][:, None] + column["discount"][:, None] * soft
        for critic_values, optimizer in zip(values, self.by_critic, strict=True):
            optimizer.zero_grad()
            self.loss(critic_values, target, column["weight"]).backward()
            optimizer.step()
        if self.updates % cfg.policy_every == 0:
            self.update_policy(obs, alpha)
        with torch.no_grad():
            for critic, goal in zip(self.critics, self.targets, strict=True):
                for theirs, mine in zip(critic.parameters(), goal.parameters(), strict=True):
                    mine.lerp_(theirs, cfg.tau)
        self.updates += 1

    def update_policy(self, obs, alpha):
        cfg = self.cfg
        chosen, logp = self.sample(obs)
        for critic in self.critics:
            critic.train(not cfg.batch_norm)
        q = torch.stack([c((obs, chosen)).mean(1) for c in self.critics])
        judged = q.mean(0) if cfg.quantiles or cfg.target_critics < cfg.critics else q.min(0).values
        self.by_actor.zero_grad()
        (alpha * logp - judged).mean().backward()
        self.by_actor.step()
        if cfg.auto_temperature:
            self.by_alpha.zero_grad()
            (-self.log_alpha * (logp.detach() - 2).mean()).backward()
            self.by_alpha.step()


@pytest.mark.parametrize("kind", KINDS)
def test_four_updates_are_those_of_plain_torch(make_transitions, kind):
    agent = SAC(dataclasses.replace(SMALL, **KINDS[kind]), OBS, ACTIONS, seed=1)
    plain = PlainSAC(agent)
    first = agent.policy_sha256()
    for _ in range(4):
        batch = make_transitions(16)
        agent.update(batch)
        plain.update(batch)
    assert agent.policy_sha256() != first and agent.train_iter == 4
    pairs = [(agent.model, plain.actor)]
    critics = agent.critics
    pairs += zip(critics.module.members, plain.critics, strict=True)
    if critics._target_weights is not None:
        pairs += zip(critics._target_weights.module.members, plain.targets, strict=True)
    for ours, theirs in pairs:
        for name, value in theirs.state_dict().items():
            np.testing.assert_allclose(
                ours.state_dict()[name], value, rtol=2e-3, atol=2e-5, err_msg=name
            )
    assert agent.temperature == pytest.approx(plain.log_alpha.exp().item(), rel=1e-5)


def test_a_terminal_state_has_no_value_and_no_entropy_after_it(make_transitions):
    batch = make_transitions(16)
    batch.discount = np.zeros(16, np.float32)
    errors = []
    for next_obs in (batch.next_obs, 100 + batch.next_obs):
        batch.next_obs = next_obs
        agent = SAC(SMALL, OBS, ACTIONS, seed=1)
        agent.update(batch)
        errors.append(agent.td_error)
    assert np.array_equal(*errors), "what comes after counts for nothing"
    batch.discount = np.full(16, 0.99, np.float32)
    agent = SAC(SMALL, OBS, ACTIONS, seed=1)
    agent.update(batch)
    assert not np.array_equal(errors[0], agent.td_error)


@pytest.mark.parametrize("size", [1, 4, 256])
def test_the_temperature_does_not_depend_on_the_size_of_the_batch(make_transitions, size):
    agent = SAC(SMALL, OBS, ACTIONS, seed=1)
    agent.update(make_transitions(size))
    # Adam's first step is one learning rate, down: the entropy is above its target.
    assert math.log(agent.temperature) == pytest.approx(-SMALL.lr_temperature, rel=1e-3)


@pytest.mark.parametrize("options", [{}, {"critics": 5, "layer_norm": True}, {"quantiles": 7}])
def test_the_bits_are_the_same_for_any_number_of_threads(make_transitions, monkeypatch, options):
    batches = [make_transitions(512) for _ in range(3)]
    found, used = set(), set()
    for threads in (1, 2, 3, 4):
        monkeypatch.setattr("muster.algos.sac.whole_cores", lambda n=threads: n)
        cfg = dataclasses.replace(SMALL, batch_size=512, **options)
        agent = SAC(cfg, OBS, ACTIONS, seed=1)
        used.add(agent.threads)
        for batch in batches:
            agent.update(batch)
        found.add(agent.policy_sha256())
    assert len(found) == 1
    assert used == ({1, 2, 3, 4} if FUSED else {1})


@pytest.mark.skipif(not FUSED, reason="torch takes a batch as a whole")
@pytest.mark.parametrize("kind", ["sac", "redq", "tqc", "layer norm"])
@pytest.mark.parametrize("size", [512, 300, 3])
def test_a_batch_in_shares_is_learnt_as_plain_torch_learns_it(make_transitions, kind, size):
    cfg = dataclasses.replace(SMALL, batch_size=512, **KINDS[kind])
    agent = SAC(cfg, OBS, ACTIONS, seed=1)
    plain = PlainSAC(agent)
    batch = make_transitions(size)
    assert agent.update(batch)["td_error_mean"] == pytest.approx(np.abs(agent.td_error).mean())
    plain.update(batch)
    assert agent.shares.members == 4
    pairs = [
        (agent.model, plain.actor),
        *zip(agent.critics.module.members, plain.critics, strict=True),
    ]
    for ours, theirs in pairs:
        for name, value in theirs.state_dict().items():
            np.testing.assert_allclose(
                ours.state_dict()[name], value, rtol=2e-3, atol=2e-5, err_msg=name
            )


@pytest.mark.parametrize("kind", [*KINDS, "droq"])
def test_an_agent_that_was_saved_goes_on_to_the_bit(make_transitions, kind):
    options = {**KINDS, "droq": {"dropout": 0.1, "layer_norm": True}}[kind]
    cfg = dataclasses.replace(SMALL, **options)
    one, other = SAC(cfg, OBS, ACTIONS, seed=1), SAC(cfg, OBS, ACTIONS, seed=2)
    for _ in range(3):
        one.update(make_transitions(16))
    one.explore(np.zeros((2, 3), np.float32))
    other.load_state_dict(one.state_dict())
    obs = np.ones((4, 3), np.float32)
    assert np.array_equal(one.explore(obs), other.explore(obs))
    batch = make_transitions(16)
    assert one.update(batch) == other.update(batch)
    assert one.policy_sha256() == other.policy_sha256()


def test_actions_fill_their_bounds_and_never_leave_them():
    agent = SAC(SMALL, OBS, ACTIONS, seed=1)
    obs = np.zeros((4_000, 3), np.float32)
    drawn = agent.explore(obs, 1.0)
    assert drawn.dtype == np.float32 and drawn.shape == (4_000, 2)
    assert drawn.mean(0) == pytest.approx([0, 5], abs=0.15)
    agent.model.head.bias.data[:] = 50.0
    for action in (agent.explore(obs), agent.act(obs)):
        assert (action <= ACTIONS.high).all() and (action >= ACTIONS.low).all()
    assert np.array_equal(agent.act(obs[:1]), [[2.0, 10.0]])


def test_random_actions_come_before_learning_and_then_none_do():
    agent = SAC(SMALL, OBS, ACTIONS)
    assert [agent.epsilon(n) for n in (0, 999, 1_000, 10**6)] == [1, 1, 0, 0]


def test_updates_without_the_policy_do_not_count_in_the_means_of_its_metrics(make_transitions):
    agent = SAC(dataclasses.replace(SMALL, policy_every=3), OBS, ACTIONS, seed=1)
    twin = SAC(dataclasses.replace(SMALL, policy_every=3), OBS, ACTIONS, seed=1)
    batches = make_transitions(4, 16)
    together = agent.update_many(batches)
    alone = [twin.update(BatchSlice(batches, k)) for k in range(4)]
    assert ["entropy" in each for each in alone] == [True, False, False, True]
    wanted = (alone[0]["entropy"] + alone[3]["entropy"]) / 2
    assert together["entropy"] == pytest.approx(wanted)
    assert agent.policy_sha256() == twin.policy_sha256()


def test_a_number_whose_bounds_are_equal_is_left_alone(make_transitions):
    space = spaces.Box(np.array([-2, 3], np.float32), np.array([2, 3], np.float32))
    agent = SAC(SMALL, OBS, space, seed=1)
    batch = make_transitions(16)
    batch.action[:, 1] = 3
    assert np.isfinite(list(agent.update(batch).values())).all()
    assert (agent.explore(batch.obs)[:, 1] == 3).all()


def test_no_critic_learns_if_the_gradient_of_one_is_not_finite(make_transitions):
    agent = SAC(SMALL, OBS, ACTIONS, seed=1)
    agent.update(make_transitions(16))
    before = agent.critics.weights.sha256()
    agent.critics.grads[0][5] = np.inf
    assert agent.critics.step() is not None
    assert agent.critics.weights.sha256() == before


@pytest.mark.parametrize("where", ["reward", "obs", "next_obs"])
def test_what_is_not_finite_is_named_and_changes_no_weight(make_transitions, where):
    agent = SAC(SMALL, OBS, ACTIONS)
    before = agent.policy_sha256(), agent.critics.state_dict()
    batch = make_transitions(16)
    getattr(batch, where)[3] = np.nan
    with pytest.raises(NonFiniteError, match=rf"{where}\[3"):
        agent.update(batch)
    after = agent.policy_sha256(), agent.critics.state_dict()
    assert after[0] == before[0]
    for k in before[1]:
        for name, value in before[1][k]["critic"].items():
            assert np.array_equal(value, after[1][k]["critic"][name])


@pytest.mark.parametrize("quantiles", [0, 5])  # in one compiled call, and step by step
def test_a_policy_that_cannot_learn_says_that_the_critics_have(make_transitions, quantiles):
    agent = SAC(dataclasses.replace(SMALL, quantiles=quantiles), OBS, ACTIONS)
    agent.critics.adam.lr = 1e30
    before = agent.policy_sha256(), agent.critics.weights.sha256(), agent.temperature
    with pytest.raises(NonFiniteError, match="the actor's loss is") as caught:
        agent.update(make_transitions(16))
    assert "the critics have learnt from this batch" in caught.value.args[1]
    assert "the weights were not changed" not in caught.value.args[1]
    after = agent.policy_sha256(), agent.critics.weights.sha256(), agent.temperature
    assert after[0] == before[0] and after[2] == before[2]
    assert after[1] != before[1]
    assert np.isfinite(agent.critics.weights.vector).all(), "such a state may be saved"


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.MultiDiscrete([2, 2]),
    ],
)
def test_actions_without_bounds_are_refused(space):
    with pytest.raises(OptionError, match="SAC needs"):
        SAC(SMALL, OBS, space)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"critics": 0}, "critics=0"),
        ({"critics": 2, "target_critics": 3}, "target_critics=3"),
        ({"quantiles": 2, "drop_quantiles": 2}, "drop_quantiles=2"),
        ({"quantiles": 25, "critics": 5}, "target_critics=2"),
        ({"batch_norm": True, "dropout": 0.1}, "batch_norm=True"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"updates_per_step": 0}, "updates_per_step=0"),
        ({"tau": 0}, "tau=0"),
        ({"lr_actor": float("nan")}, "lr_actor=nan"),
        ({"model": ""}, "model=''"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(OptionError) as caught:
        SACConfig(**options)
    assert said in str(caught.value)


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 1, 1.5, 20])
@pytest.mark.parametrize("step", [1, 3, 8])
def test_no_fraction_of_an_update_is_lost(ratio, step):
    cfg = SACConfig(updates_per_step=ratio)
    ends = range(0, 2_400 + 1, step)
    done = sum(cfg.updates_between(end - step, end) for end in ends[1:])
    assert done == math.floor(2_400 * ratio + 1e-9)


@pytest.mark.skipif(not FUSED, reason="numba cannot compile here")
@pytest.mark.parametrize("kind", ["sac", "redq", "one critic", "layer norm", "fixed temperature"])
def test_one_call_computes_the_bits_of_one_step_after_the_other(make_transitions, kind):
    cfg = dataclasses.replace(SMALL, batch_size=256, **KINDS[kind])
    at_once, in_steps = (SAC(cfg, OBS, ACTIONS, seed=3) for _ in range(2))
    assert at_once._in_one_call
    in_steps._in_one_call = False
    for _ in range(6):
        batch = make_transitions(256)
        told, expected = at_once.update(batch), in_steps.update(batch)
        assert told == pytest.approx(expected, rel=1e-6)
        assert np.array_equal(at_once.td_error, in_steps.td_error)
        assert np.array_equal(at_once.weights.vector, in_steps.weights.vector)
        assert np.array_equal(at_once.critics.weights.vector, in_steps.critics.weights.vector)
