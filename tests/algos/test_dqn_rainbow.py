"""What completes Rainbow, switch by switch, against plain loops and torch autograd."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

import muster
from muster import OptionError
from muster.algos import DQN, DQNConfig
from muster.envs.masks import ACTION_MASK

BOX = spaces.Box(-1, 1, (4,))
THREE = spaces.Discrete(3)
M, TAU, ALPHA = 5, 0.3, 0.8


def agent_and_target(**options):
    """Return an agent whose target network is another one, and that one's module."""
    options = {"hidden": (16, 16), "munchausen_tau": TAU, "munchausen_alpha": ALPHA, **options}
    agent, other = (DQN(DQNConfig(**options), BOX, THREE, seed) for seed in (0, 1))
    agent._target_weights.load_state_dict(other.parts()["policy"])
    return agent, other.model


def by_action(module, obs, quantiles):
    """Return the outputs of a module for one observation, [actions, quantiles], as a tensor."""
    return module(torch.from_numpy(obs[None]))[0].view(3, max(1, quantiles))


def log_pi(q):
    """Return log softmax(q / tau) of a list, term by term."""
    top = max(q)
    total = math.fsum(math.exp((value - top) / TAU) for value in q)
    return [(value - top) / TAU - math.log(total) for value in q]


def slow_target(agent, target, batch, row):
    """Return the samples that quantiles of one row (or its only value) are drawn to."""
    cfg = agent.cfg
    with torch.no_grad():
        following = by_action(target, batch.next_obs[row], cfg.quantiles)
        online = by_action(agent.model, batch.next_obs[row], cfg.quantiles)
        now = by_action(target, batch.obs[row], cfg.quantiles)
    means = following.mean(1).tolist()
    reward, discount = float(batch.reward[row]), float(batch.discount[row])
    if not cfg.munchausen:
        best = int(online.mean(1).argmax()) if cfg.double else means.index(max(means))
        return [reward + discount * value for value in following[best].tolist()]
    done = log_pi(now.mean(1).tolist())[batch.action[row]]
    reward += ALPHA * max(min(TAU * done, 0.0), -1.0)
    logs = log_pi(means)
    return [
        reward
        + discount
        * math.fsum(math.exp(logs[a]) * (float(following[a, j]) - TAU * logs[a]) for a in range(3))
        for j in range(max(1, cfg.quantiles))
    ]


def slow_loss(agent, target, batch):
    """Return the mean loss of a batch as a tensor, and its errors, pair by pair."""
    rows, errors = [], []
    for row in range(len(batch.action)):
        goal = slow_target(agent, target, batch, row)
        mine = by_action(agent.model, batch.obs[row], agent.cfg.quantiles)[batch.action[row]]
        errors.append(float(mine.mean().detach()) - sum(goal) / len(goal))
        total = 0.0
        for i, value in enumerate(mine):
            at = (2 * i + 1) / (2 * len(mine)) if agent.cfg.quantiles else None
            for sample in goal:
                error = sample - value
                small = error.abs() <= 1
                huber = torch.where(small, 0.5 * error**2, error.abs() - 0.5)
                side = 1.0 if at is None else abs(at - float(error.detach() < 0))
                total = total + side * huber / (len(mine) * len(goal))
        rows.append(float(batch.weight[row]) * total)
    return torch.stack(rows).mean(), errors


@pytest.mark.parametrize(
    "options",
    [
        {"quantiles": M},
        {"quantiles": M, "double": True, "dueling": True},
        {"munchausen": True},
        {"munchausen": True, "quantiles": M},
    ],
    ids=["quantiles", "double", "munchausen", "both"],
)
def test_loss_gradient_and_errors_are_those_of_a_slow_loop(options, make_batch):
    agent, target = agent_and_target(**options)
    batch = make_batch(12, actions=3)
    batch.reward *= 3
    assert 0 in batch.discount and (batch.discount > 0).any()
    agent.model.zero_grad()
    loss, errors = slow_loss(agent, target, batch)
    loss.backward()
    expected = {name: each.grad.numpy().copy() for name, each in agent.model.named_parameters()}
    gradient, metrics = agent.gradient(batch)
    # The loss of quantiles is a mean over pairs; its gradient is too.
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    np.testing.assert_allclose(agent.td_error, errors, rtol=1e-4, atol=1e-5)
    for name, found in gradient.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-3, atol=1e-6, err_msg=name)


def test_the_gradient_by_means_and_spreads_of_noisy_weights_is_that_of_autograd(make_batch):
    agent, _ = agent_and_target(noisy=True, dueling=True)
    batch = make_batch(8, actions=3)
    gradient, _ = agent.gradient(batch)
    # The noise that was drawn, layer by layer: an outer product, and its factor for the bias.
    net, model = agent._net, agent.model
    q = net.forward(batch.obs)
    noisy = {}
    for name, at in net._plain.names_and_slices.items():
        mean, spread = (dict(part.named_parameters())[name] for part in (model.mean, model.spread))
        noise = torch.from_numpy(net.noise[at].copy()).view(mean.shape)
        if mean.dim() == 2:
            assert np.linalg.matrix_rank(noise.numpy(), tol=1e-5) == 1
        noisy[name] = mean + spread * noise
    made = torch.func.functional_call(model.mean, noisy, (torch.from_numpy(batch.obs),))
    np.testing.assert_allclose(q, made.detach().numpy(), atol=1e-5)
    dq = np.ones_like(q) / q.size
    made.backward(torch.from_numpy(dq))
    found = np.empty(agent.weights.vector.size, np.float32)
    net.backward(dq, found)
    for name, at in agent.weights.names_and_slices.items():
        expected = dict(model.named_parameters())[name].grad.numpy().reshape(-1)
        np.testing.assert_allclose(found[at], expected, rtol=1e-4, atol=1e-6, err_msg=name)
    assert {name for name, each in gradient.items() if each.any()} == gradient.keys()


def test_noise_explores_and_the_seed_decides_it_and_evaluations_have_none(rng):
    agents = [agent_and_target(noisy=True)[0] for _ in range(2)]
    obs = rng.normal(size=(200, 4)).astype(np.float32)
    drawn = [[agent.explore(obs).tolist() for _ in range(5)] for agent in agents]
    assert drawn[0] == drawn[1]
    assert len({tuple(each) for each in drawn[0]}) == 5, "each call has its own noise"
    before = agents[0].parts()["exploration"]
    with torch.no_grad():
        expected = agents[0].model(torch.from_numpy(obs)).argmax(1).numpy()
    np.testing.assert_array_equal(agents[0].act(obs), expected)
    assert agents[0].parts()["exploration"] == before
    assert agents[0].epsilon(0) == 0


def test_noise_is_factorised_with_the_spread_of_the_paper():
    agent, _ = agent_and_target(noisy=True)
    first = agent.model.spread.trunk[0]
    assert first.weight.detach().numpy() == pytest.approx(0.5 / math.sqrt(4))
    at = agent._net._plain.names_and_slices
    rng, bias, weight = np.random.default_rng(0), [], []
    for _ in range(4_000):
        agent._net.draw(rng)
        bias.append(agent._net.noise[at["trunk.0.bias"]].copy())
        weight.append(agent._net.noise[at["trunk.0.weight"]].copy())
    # f(x)^2 = |x|, whose mean is sqrt(2 / pi); a weight's noise is a product of two of them.
    assert np.mean(bias) == pytest.approx(0, abs=0.02)
    assert np.mean(np.square(bias)) == pytest.approx(math.sqrt(2 / math.pi), abs=0.02)
    assert np.mean(np.square(weight)) == pytest.approx(2 / math.pi, abs=0.02)


def test_the_action_with_the_best_mean_of_its_quantiles_is_taken(rng):
    agent, _ = agent_and_target(quantiles=M)
    obs = rng.normal(size=(40, 4)).astype(np.float32)
    with torch.no_grad():
        means = agent.model(torch.from_numpy(obs)).view(40, 3, M).mean(2)
    np.testing.assert_array_equal(agent.act(obs), means.argmax(1).numpy())


def test_what_was_all_but_impossible_costs_no_more_than_one():
    from muster.rl_utils.munchausen import munchausen_terms

    q = np.array([[0.0, 1_000.0]])
    bonus, follows = munchausen_terms(q, np.array([0]), q[..., None], 0.9, 0.03)
    assert bonus == pytest.approx([-0.9]) and follows == pytest.approx(np.array([[1_000.0]]))


def test_an_action_that_there_is_not_is_refused(make_batch):
    agent, _ = agent_and_target(quantiles=M)
    batch = make_batch(4, actions=3)
    batch.action[2] = 3
    with pytest.raises(OptionError, match=r"action\[2\] is 3"):
        agent.update(batch)


@pytest.mark.parametrize(
    "options",
    [
        {"quantiles": 7, "dueling": True, "prioritized": True},
        {"munchausen": True},
        {"noisy": True, "double": True},
    ],
)
def test_a_run_repeats_itself_to_the_bit_also_across_a_stop(tmp_path, options):
    options = {
        "hidden": (16, 16),
        "batch_size": 16,
        "learning_starts": 64,
        "train_every": 32,
        "updates_per_train": 8,
        "num_envs": 4,
        "eval_every": 0,
        "eval_episodes": 1,
        "stop_at": None,
        "quiet": True,
        **options,
    }
    once = muster.train("dqn", "CartPole-v1", run_dir=str(tmp_path / "a"), env_steps=320, **options)
    muster.train("dqn", "CartPole-v1", run_dir=str(tmp_path / "b"), env_steps=160, **options)
    resumed = muster.resume(tmp_path / "b", env_steps=320, quiet=True)
    assert resumed.policy_sha256 == once.policy_sha256 and once.train_iter > 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"munchausen": True, "double": True}, "munchausen=True and double=True"),
        ({"munchausen": True, "n_step": 3}, "munchausen=True and n_step=3"),
        ({"quantiles": 9, "huber": False}, "quantiles=9 and huber=False"),
        ({"quantiles": -1}, "quantiles=-1 is not possible"),
        ({"munchausen_tau": 0.0}, "munchausen_tau=0.0 is not possible"),
    ],
)
def test_switches_that_contradict_each_other_are_refused(options, what):
    with pytest.raises(OptionError, match=what):
        DQNConfig(**options)


def test_quantiles_and_masks_are_refused():
    masked = spaces.Dict({"seen": BOX, ACTION_MASK: spaces.MultiBinary(3)})
    with pytest.raises(OptionError, match="quantiles=5 is not possible with action masks"):
        DQN(DQNConfig(quantiles=M), masked, THREE)
