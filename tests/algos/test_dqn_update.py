"""What an update does to the weights: numbers by hand, probes, and both paths compared."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from muster import OptionError
from muster.algos import DQN, DQNConfig, NonFiniteError
from muster.algos.batches import column
from muster.nets import FusedNet, TorchNet, build_q_network

BOX = spaces.Box(-1, 1, (4,))
TWO = spaces.Discrete(2)
PATHS = ["fast", "torch"]


def _line(double, huber=True, **options):
    """One observation x, no hidden layer: Q = (x, 2x), and Q = (3x, x) in the target network."""
    cfg = DQNConfig(hidden=(), double=double, huber=huber, **options)
    agent = DQN(cfg, spaces.Box(-10, 10, (1,)), TWO)
    bias = np.zeros(2, np.float32)
    agent.load_parts(
        {
            "policy": {"head.weight": np.array([[1], [2]], np.float32), "head.bias": bias},
            "target": {"head.weight": np.array([[3], [1]], np.float32), "head.bias": bias},
        }
    )
    return agent


def _transition(**changes):
    values = {"obs": 1, "action": 0, "reward": 1, "next_obs": 2, "discount": 0.5, "weight": 1}
    values |= changes
    batch = {name: np.array([value], np.float32) for name, value in values.items()}
    batch["action"] = np.array([values["action"]])
    batch["obs"], batch["next_obs"] = batch["obs"][:, None], batch["next_obs"][:, None]
    return SimpleNamespace(**batch)


# Plain: the target network's best at x=2 is 6, so y = 1 + 0.5 * 6 = 4, and q = 1.
# Double: the learning network prefers action 1 there (4 > 2), which the target network values at 2,
# so y = 1 + 0.5 * 2 = 2.
@pytest.mark.parametrize(
    ("double", "huber", "td_error", "loss", "slope"),
    [
        (False, True, -3, 2.5, -1),
        (False, False, -3, 4.5, -3),
        (True, True, -1, 0.5, -1),
        (True, False, -1, 0.5, -1),
    ],
)
def test_one_transition_by_hand(double, huber, td_error, loss, slope):
    agent = _line(double, huber, max_grad_norm=None)
    metrics = agent.update(_transition())
    assert agent.td_error.tolist() == [td_error]
    assert metrics["loss"] == loss
    assert metrics["q_mean"] == 1
    assert metrics["td_error_mean"] == abs(td_error)
    assert metrics["grad_norm"] == pytest.approx(math.sqrt(2) * abs(slope))  # weight and bias


def test_only_what_was_done_is_learnt():
    agent = _line(double=False, lr=0.25)
    agent.update(_transition())
    policy = agent.parts()["policy"]
    assert policy["head.weight"].ravel() == pytest.approx([1.25, 2])  # towards 4, by lr
    assert policy["head.bias"] == pytest.approx([0.25, 0])


def test_after_a_terminated_episode_only_the_reward_counts():
    agent = _line(double=False)
    agent.update(_transition(discount=0, reward=0.25))
    assert agent.td_error.tolist() == [0.75]


def test_importance_weights_scale_loss_and_gradient():
    full, half = (_line(True).update(_transition(weight=w)) for w in (1, 0.5))
    assert half["loss"] == full["loss"] / 2
    assert half["grad_norm"] == pytest.approx(full["grad_norm"] / 2)


def test_the_gradient_is_clipped_before_the_step(make_batch):
    # Adam's first step hides the gradient's length; its running means do not.
    agent = DQN(DQNConfig(hidden=(8,), max_grad_norm=0.01), BOX, TWO)
    assert agent.update(make_batch(16))["grad_norm"] > 0.1
    mean = agent.parts()["optimizer"]["mean"]
    assert np.linalg.norm(mean) == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_the_order_of_a_batch_does_not_matter(rng, make_batch):
    batch = make_batch(64)
    order = rng.permutation(64)
    moved = SimpleNamespace(**{name: value[order] for name, value in vars(batch).items()})
    one, other = (DQN(DQNConfig(hidden=(32, 32)), BOX, TWO) for _ in range(2))
    assert one.update(batch) == pytest.approx(other.update(moved), rel=1e-5)
    assert one.td_error[order] == pytest.approx(other.td_error, rel=1e-5)
    for name, weights in one.parts()["policy"].items():
        np.testing.assert_allclose(weights, other.parts()["policy"][name], atol=1e-6)


def test_actions_may_begin_anywhere(make_batch):
    batch = make_batch(16, actions=3)
    plain, shifted = (
        DQN(DQNConfig(hidden=(8,)), BOX, spaces.Discrete(3, start=start)) for start in (0, 5)
    )
    plain.update(batch)
    batch.action = batch.action + 5
    shifted.update(batch)
    assert plain.policy_sha256() == shifted.policy_sha256()


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 1.0), (0.25, 0.25)])
def test_the_target_network_moves_on_schedule(make_batch, tau, expected):
    agent = DQN(DQNConfig(hidden=(8,), target_update=3, tau=tau), BOX, TWO)
    start = agent.parts()["target"]["head.weight"]
    for iteration in range(1, 6):
        agent.update(make_batch(8))
        assert agent.train_iter == iteration
        parts = agent.parts()
        if iteration < 3:
            assert np.array_equal(parts["target"]["head.weight"], start)
        if iteration == 3:
            policy = parts["policy"]["head.weight"]
            moved = start + expected * (policy - start)
            np.testing.assert_allclose(parts["target"]["head.weight"], moved, atol=1e-6)
            start = parts["target"]["head.weight"]
        if iteration > 3:
            assert np.array_equal(parts["target"]["head.weight"], start)


@pytest.mark.parametrize("hidden", [(64, 64), (256, 256), (7, 33)])
@pytest.mark.parametrize("options", [{}, {"double": True}, {"dueling": True}, {"tau": 0.1}])
def test_many_updates_at_once_are_the_same_bits(make_batch, hidden, options):
    cfg = DQNConfig(hidden=hidden, target_update=3, **options)
    one, other = (DQN(cfg, BOX, TWO) for _ in range(2))
    batches = make_batch(8, 64)
    metrics, errors = [], []
    for k in range(8):
        single = SimpleNamespace(**{name: value[k] for name, value in vars(batches).items()})
        metrics.append(one.update(single))
        errors.append(one.td_error)
    together = other.update_many(batches)
    assert one.policy_sha256() == other.policy_sha256()
    _assert_equal(one.parts(), other.parts())
    assert np.array_equal(other.td_error, errors)
    assert together == pytest.approx(
        {name: np.mean([m[name] for m in metrics]) for name in metrics[0]}
    )


class Opaque(nn.Sequential):
    """The same network, but not to be recognised as a chain."""

    def forward(self, obs):
        return super().forward(obs)


@pytest.mark.parametrize(
    "options",
    [{}, {"double": True, "huber": False}, {"dueling": True}, {"activation": "tanh", "tau": 0.5}],
)
def test_the_fast_path_and_torch_learn_the_same(make_batch, options):
    cfg = DQNConfig(hidden=(32, 16), lr=1e-3, target_update=4, **options)
    fast = DQN(cfg, BOX, TWO)
    made = {"activation": cfg.activation, "dueling": cfg.dueling}
    plain = DQNConfig(hidden=(32, 16), lr=1e-3, target_update=4, **{**options, "dueling": False})
    torch_agent = DQN(
        plain, BOX, TWO, model=lambda s, n: Opaque(build_q_network(s, n, (32, 16), **made))
    )
    assert isinstance(fast._net, FusedNet)
    assert isinstance(torch_agent._net, TorchNet)
    torch_agent.load_parts(
        {"policy": {f"0.{name}": weights for name, weights in fast.parts()["policy"].items()}}
    )
    batches = make_batch(40, 32)
    metrics, reference = (agent.update_many(batches) for agent in (fast, torch_agent))
    assert metrics == pytest.approx(reference, rel=1e-3)
    np.testing.assert_allclose(fast.td_error, torch_agent.td_error, rtol=1e-3, atol=1e-3)
    for name, weights in fast.parts()["policy"].items():
        other = torch_agent.parts()["policy"][f"0.{name}"]
        np.testing.assert_allclose(weights, other, rtol=1e-3, atol=1e-4)


def test_torch_and_its_own_optimiser_would_learn_the_same(make_batch):
    cfg = DQNConfig(hidden=(32, 16), lr=1e-3, double=True, target_update=1000)
    agent = DQN(cfg, BOX, TWO)
    online, target = (build_q_network(BOX, 2, (32, 16)) for _ in range(2))
    online.load_state_dict(agent.model.state_dict())
    target.load_state_dict(agent.model.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), cfg.lr)
    for _ in range(30):
        batch = make_batch(32)
        t = SimpleNamespace(
            **{name: torch.from_numpy(value) for name, value in vars(batch).items()}
        )
        with torch.no_grad():
            best = online(t.next_obs).argmax(1, keepdim=True)
            y = t.reward + t.discount * target(t.next_obs).gather(1, best)[:, 0]
        q = online(t.obs).gather(1, t.action[:, None])[:, 0]
        loss = (t.weight * nn.functional.smooth_l1_loss(q, y, reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(online.parameters(), cfg.max_grad_norm)
        optimizer.step()
        metrics = agent.update(batch)
        assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-3)
        assert metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-3)
    for mine, theirs in zip(agent.model.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_learning_a_constant_reward_finds_it(make_batch):
    agent = DQN(DQNConfig(hidden=(16,), lr=1e-2), BOX, TWO)
    batch = make_batch(64)
    batch.reward[:], batch.discount[:], batch.weight[:] = 3, 0, 1
    for _ in range(300):
        metrics = agent.update(batch)
    assert metrics["loss"] < 1e-3
    assert metrics["q_mean"] == pytest.approx(3, abs=0.05)


def _small(path):
    """An agent with one hidden layer of eight, on the fast path or on torch's."""
    options = {"hidden": (8,), "activation": "tanh"}
    if path == "fast":
        return DQN(DQNConfig(**options), BOX, TWO)
    return DQN(DQNConfig(), BOX, TWO, model=lambda s, n: Opaque(build_q_network(s, n, **options)))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("field", ["reward", "discount", "weight", "obs", "next_obs"])
def test_a_batch_that_is_not_finite_is_named_and_nothing_is_changed(make_batch, path, field, value):
    agent = _small(path)
    agent.update(make_batch(8))
    batch = make_batch(8)
    batch.discount[:] = 0.9
    array = getattr(batch, field)
    if field in ("obs", "next_obs"):
        array[3] = 0
        array[3, 1] = np.nan  # tanh takes an infinite observation to a finite value
        value = np.nan
        where = r"\[3, 1\]"
    else:
        array[3] = value
        where = r"\[3\]"
    before, digest = agent.parts(), agent.policy_sha256()
    with pytest.raises(
        NonFiniteError, match=rf"in update 2: {field}{where} of the batch is {value}"
    ):
        agent.update(batch)
    assert agent.policy_sha256() == digest
    _assert_equal(agent.parts(), before)


def _assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            _assert_equal(value, other[name])
        else:
            assert np.array_equal(value, other[name])


@pytest.mark.parametrize("path", PATHS)
def test_a_network_that_is_not_finite_is_named(make_batch, path):
    agent = _small(path)
    parts = agent.parts()
    sound = {name: weights.copy() for name, weights in parts["policy"].items()}
    next(iter(parts["policy"].values()))[0, 0] = np.nan
    agent.load_parts({"policy": parts["policy"], "target": sound})
    with pytest.raises(NonFiniteError, match="the network's output is not finite"):
        agent.update(make_batch(8))
    agent.load_parts({"policy": sound, "target": parts["policy"]})
    with pytest.raises(NonFiniteError, match="the target network's output is not finite"):
        agent.update(make_batch(8))


def test_an_error_too_large_to_be_squared_is_named(make_batch):
    agent = DQN(DQNConfig(hidden=(8,), huber=False), BOX, TWO)
    batch = make_batch(8)
    batch.reward[2] = 1e30
    with pytest.raises(NonFiniteError, match="too large to be squared"):
        agent.update(batch)


@pytest.mark.parametrize("path", PATHS)
def test_a_gradient_that_is_not_finite_is_named_and_nothing_is_changed(make_batch, path):
    agent = _small(path)
    names = list(agent.parts()["policy"])
    policy = {name: np.zeros_like(x) for name, x in agent.parts()["policy"].items()}
    policy[names[2]][:] = 1e30  # the head: tanh(0) = 0 hides it in q, but not in the gradient
    agent.load_parts({"policy": policy})
    batch = make_batch(8)
    batch.obs[:] = 1e20
    batch.next_obs[:] = 0
    digest = agent.policy_sha256()
    with pytest.raises(NonFiniteError, match=f"the gradient of '{names[0]}' is -?(inf|nan)"):
        agent.update(batch)
    assert agent.policy_sha256() == digest
    assert agent.train_iter == 0
    assert agent.parts()["optimizer"]["steps"] == 0


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_batch_is_refused(make_batch, path):
    agent = _small(path)
    digest = agent.policy_sha256()

    def refused(message, **changes):
        batch = make_batch(8)
        vars(batch).update(changes)
        with pytest.raises(OptionError, match=message):
            agent.update(batch)

    refused(r"action\[5\] is 2", action=np.array([0, 1, 0, 1, 0, 2, 0, 9]))
    refused(r"action\[0\] is -1", action=np.full(8, -1))
    refused(r"reward of the batch has shape \(8, 1\)", reward=np.zeros((8, 1), np.float32))
    refused(r"weight of the batch has shape \(\d\,\)", weight=np.ones(7, np.float32))
    refused("8 actions, 8 observations and 6 next ones", next_obs=np.zeros((6, 4), np.float32))
    refused("8 actions, 6 observations and 8 next ones", obs=np.zeros((6, 4), np.float32))
    with pytest.raises(OptionError, match="update_many got no batch"):
        agent.update_many(make_batch(0, 8))
    assert agent.policy_sha256() == digest


def test_a_batch_may_be_of_other_types_and_read_only(make_batch):
    one, other = (DQN(DQNConfig(hidden=(8,)), BOX, TWO) for _ in range(2))
    batch = make_batch(8)
    one.update(batch)
    changed = {name: value.astype(np.float64) for name, value in vars(batch).items()}
    changed["action"] = batch.action.astype(np.int32)
    for value in changed.values():
        value.flags.writeable = False
    other.update(SimpleNamespace(**changed))
    assert one.policy_sha256() == other.policy_sha256()


def test_the_kernel_gets_columns_of_one_kind():
    # For memory of another kind (read-only, strided, float64) numba would compile it anew.
    frozen = np.arange(4, dtype=np.float32)
    frozen.flags.writeable = False
    for values in (frozen, np.arange(8.0)[::2], np.arange(4)):
        got = column("reward", values, np.float32, 4)
        assert got.flags.writeable and got.flags.c_contiguous and got.dtype == np.float32
    own = np.arange(4, dtype=np.float32)
    assert column("reward", own, np.float32, 4) is own


def test_a_dict_of_images_and_numbers_is_learnt_from(rng):
    space = spaces.Dict(
        image=spaces.Box(0, 255, (12, 12, 1), np.uint8), speed=spaces.Box(-1, 1, (2,))
    )
    agent, many = (DQN(DQNConfig(hidden=(8,), lr=1e-3), space, TWO) for _ in range(2))

    def obs():
        return {
            "image": rng.integers(0, 256, (3, 16, 12, 12, 1), dtype=np.uint8),
            "speed": rng.normal(size=(3, 16, 2)).astype(np.float32),
        }

    ones = np.ones((3, 16), np.float32)
    action = rng.integers(0, 2, (3, 16))
    batches = SimpleNamespace(
        obs=obs(), action=action, reward=ones, next_obs=obs(), discount=ones, weight=ones
    )
    many.update_many(batches)
    for k in range(3):
        part = {name: value[k] for name, value in vars(batches).items() if not name.endswith("obs")}
        for name in ("obs", "next_obs"):
            part[name] = {key: array[k] for key, array in getattr(batches, name).items()}
        agent.update(SimpleNamespace(**part))
    assert agent.policy_sha256() == many.policy_sha256()
    bad = {**part["obs"], "speed": np.full((16, 2), np.inf, np.float32)}
    with pytest.raises(NonFiniteError, match=r"obs\['speed'\]\[0, 0\] of the batch is inf"):
        agent.update(SimpleNamespace(**{**part, "obs": bad}))


@pytest.mark.parametrize(
    ("lr_end", "wanted"), [(None, [1e-2] * 4), (0.0, [9e-3, 7e-3, 5e-3, 3e-3])]
)
def test_the_learning_rate_falls_in_a_line_by_the_steps_that_updates_stand_for(lr_end, wanted):
    options = {"lr_end": lr_end, "horizon": 1_000, "learning_starts": 100}
    agent = _line(False, lr=1e-2, train_every=200, updates_per_train=1, **options)
    found = []
    for _ in range(4):
        agent.update(_transition())
        found.append(agent._adam.lr)
    assert found == pytest.approx(wanted)
