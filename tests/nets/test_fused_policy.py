"""The compiled policy against torch in float64, its bits, and which networks it takes."""

import copy
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import autograd, loss_and_stats, some_rollout
from torch import nn

from muster.errors import OptionError
from muster.nets import fused_kernels, fused_policy
from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.flat import FlatParameters
from muster.nets.fused_activations import tanh
from muster.nets.fused_policy import FusedPolicy, why_not_fused
from muster.nets.policy_net import STATS, LossTerms
from muster.nets.q_objective import QObjective, QTerms
from muster.nets.tile import FUSED
from muster.nets.torch_policy import TorchPolicy
from muster.rl_utils.losses import ppo as loss_kernels
from muster.rl_utils.losses.q import BEST

needs_numba = pytest.mark.skipif(not FUSED, reason="numba cannot compile here")
TERMS = LossTerms(scale=1 / 40, clip=0.2, value_clip=0.0, value_coef=0.5, entropy_coef=0.01)
TWO = spaces.Discrete(2)
MULTI = spaces.MultiDiscrete([3, 1, 5])
BOX = spaces.Box(-1, 1, (6,))
SHAPES = [
    # observation, actions, hidden, shared, activation, normaliser, value clipping, rows
    (4, TWO, (64, 64), False, "tanh", False, 0.0, 64),
    (4, TWO, (64, 64), True, "tanh", True, 0.2, 64),
    (4, spaces.Discrete(1), (5,), False, "relu", False, 0.0, 1),
    (1, spaces.Discrete(19), (16, 33, 7), False, "tanh", True, 0.0, 67),
    (17, BOX, (64, 64), False, "tanh", True, 0.3, 100),
    (3, spaces.Box(-1, 1, (1,)), (48,), True, "relu", False, 0.0, 17),
    (16, MULTI, (32, 16), True, "tanh", False, 0.1, 130),
    (31, MULTI, (200, 15), False, "relu", True, 0.0, 65),
    (15, spaces.Discrete(16), (17, 31, 47), True, "relu", False, 0.2, 31),
    (7, spaces.Discrete(3), (), False, "tanh", True, 0.0, 50),
    (100, BOX, (128, 255), True, "tanh", False, 0.0, 200),
    (4, TWO, (256, 256), False, "tanh", False, 0.0, 64),
    (376, BOX, (257, 64), False, "tanh", True, 0.0, 65),
    (17, BOX, (400, 300), False, "relu", True, 0.2, 70),
    (5, TWO, (512, 33, 520), True, "silu", False, 0.0, 20),
    (9, MULTI, (40, 24), False, "gelu", True, 0.1, 90),
    (6, BOX, (64, 64), True, "gelu", False, 0.0, 64),
    (3, spaces.Discrete(4), (31, 17), False, "silu", True, 0.0, 130),
]


def _made(n_obs=4, space=TWO, hidden=(64, 64), shared=False, activation="tanh", norm=False):
    """Return a network whose actions differ visibly, its vector, its head and its policy."""
    head = ActionHead.of(space)
    module = ActorCritic(
        spaces.Box(-np.inf, np.inf, (n_obs,)),
        head,
        hidden,
        shared,
        activation,
        norm,
        log_std=-0.3,
        generator=torch.Generator().manual_seed(n_obs),
    )
    flat = FlatParameters(module)
    generator = np.random.default_rng(1)
    flat.vector += generator.normal(0, 0.1, flat.vector.size).astype(np.float32)
    if norm:
        mean, var = generator.normal(size=(2, n_obs)) ** 2
        module.normalizer.parts[0].merge(100, mean, 100 * (var + 0.5))
    return module, flat, head, FusedPolicy(module, flat, head)


def _obs(rng, n, n_obs):
    return rng.normal(0.5, 2, (n, n_obs)).astype(np.float32)


def _noise(rng, head, n):
    drawn = rng.normal(size=(n, head.width)) if head.gaussian else rng.random((n, head.width))
    return drawn.astype(np.float32)


def _act(policy, head, obs, noise):
    action = np.zeros((len(noise), head.width), head.dtype)
    logp, value = np.full((2, len(noise)), np.nan, np.float32)
    policy.act(obs, noise, action, logp, value)
    return action, logp, value


def _gradient(policy, flat, rollout, rows, terms=TERMS):
    grad, stats = np.full_like(flat.vector, np.nan), np.full(len(STATS), np.nan)
    policy.gradient(rollout, rows, terms, grad, stats)
    return grad, stats


def _near_rollout(rng, policy, head, n, n_obs):
    """Return a rollout that the policy itself acted, but for a step since: as in later epochs."""
    obs = _obs(rng, n, n_obs)
    action, logp, value = _act(policy, head, obs, _noise(rng, head, n))
    logp += rng.normal(0, 0.2, n).astype(np.float32)
    value += rng.normal(0, 0.3, n).astype(np.float32)
    return some_rollout(rng, head, obs, n)._replace(action=action, logp=logp, value=value)


def _in_float64(module, obs):
    """Return a copy of the network in float64, and its outputs and values."""
    twin = copy.deepcopy(module).double()
    x = torch.from_numpy(obs)
    x = (x if module.normalizer is None else module.normalizer(x)).double()
    features = twin.trunk(x)
    outputs = twin.policy(features)
    if twin.log_std is not None:
        outputs = torch.cat([outputs, twin.log_std.expand_as(outputs)], dim=1)
    return twin, outputs, twin.value(features).squeeze(1)


@needs_numba
@pytest.mark.parametrize(
    ("n_obs", "space", "hidden", "shared", "activation", "norm", "value_clip", "count"), SHAPES
)
def test_gradient_and_sums_are_those_of_float64(
    rng, n_obs, space, hidden, shared, activation, norm, value_clip, count
):
    module, flat, head, policy = _made(n_obs, space, hidden, shared, activation, norm)
    rollout = _near_rollout(rng, policy, head, 2 * count + 3, n_obs)
    terms = TERMS._replace(value_clip=value_clip, scale=1 / count)
    for _ in range(2):  # the second must not add to the first
        rows = rng.permutation(2 * count + 3)[:count]
        twin, outputs, value = _in_float64(module, rollout.obs[rows])
        loss, expected_stats = loss_and_stats(head, outputs, value, rollout, rows, terms)
        expected = autograd(twin, loss)
        grad, stats = _gradient(policy, flat, rollout, rows, terms)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(grad, expected, rtol=1e-5, atol=2e-6 * max(scale, 0.1))
        np.testing.assert_allclose(stats, expected_stats, rtol=1e-5, atol=2e-6)


@needs_numba
@pytest.mark.parametrize(
    ("n_obs", "space", "hidden", "shared", "activation", "norm", "value_clip", "count"), SHAPES
)
def test_acting_is_what_torch_says(
    rng, n_obs, space, hidden, shared, activation, norm, value_clip, count
):
    module, _, head, policy = _made(n_obs, space, hidden, shared, activation, norm)
    obs, noise = _obs(rng, count, n_obs), _noise(rng, head, count)
    action, logp, value = _act(policy, head, obs, noise)
    outputs, expected_value = (x.detach().numpy() for x in module(torch.from_numpy(obs)))
    sizes = np.array(head.sizes, np.int64)
    expected, expected_logp = np.zeros_like(action), np.zeros_like(logp)
    loss_kernels.sample_actions_numpy(outputs, noise, head.gaussian, sizes, expected, expected_logp)
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logp, expected_logp, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-5)

    only_value = np.zeros_like(value)
    policy.values(obs, only_value)
    assert np.array_equal(only_value, value)
    best = policy.best(obs)
    loss_kernels.best_actions_numpy(outputs, head.gaussian, sizes, expected)
    np.testing.assert_allclose(best, expected, rtol=1e-5, atol=1e-5)
    assert best.dtype == head.dtype


def _with_norms(n_obs, space, hidden, activation, critic):
    """Return a network with LayerNorm, for a policy or (without a critic) for Q-learning."""
    head = ActionHead.of(space)
    module = ActorCritic(
        spaces.Box(-np.inf, np.inf, (n_obs,)),
        head,
        hidden,
        False,
        activation,
        generator=torch.Generator().manual_seed(n_obs),
        layer_norm=True,
        critic=critic,
    )
    flat = FlatParameters(module)
    flat.vector += np.random.default_rng(1).normal(0, 0.2, flat.vector.size).astype(np.float32)
    objective = ClippedObjective(head) if critic else QObjective()
    return module, flat, head, FusedPolicy(module, flat, head, objective)


NORMED = pytest.mark.parametrize(
    ("n_obs", "actions", "hidden", "activation", "count"),
    [
        (4, 2, (64, 64), "relu", 64),
        (1, 1, (5,), "tanh", 3),
        (17, 19, (128, 15, 33), "relu", 131),
        (8, 4, (128, 128), "relu", 100),
        (7, 3, (), "relu", 20),
    ],
)


@needs_numba
@NORMED
def test_layer_norm_is_that_of_float64_in_a_policy(rng, n_obs, actions, hidden, activation, count):
    space = spaces.Discrete(actions)
    module, flat, head, policy = _with_norms(n_obs, space, hidden, activation, critic=True)
    rollout = _near_rollout(rng, policy, head, 2 * count + 3, n_obs)
    rows = rng.permutation(2 * count + 3)[:count]
    terms = TERMS._replace(scale=1 / count)
    twin, outputs, value = _in_float64(module, rollout.obs[rows])
    loss, expected_stats = loss_and_stats(head, outputs, value, rollout, rows, terms)
    expected = autograd(twin, loss)
    grad, stats = _gradient(policy, flat, rollout, rows, terms)
    near = 5e-6 * max(np.abs(expected).max(), 0.1)
    np.testing.assert_allclose(grad, expected, rtol=3e-5, atol=near)
    np.testing.assert_allclose(stats, expected_stats, rtol=1e-4, atol=5e-6)


@needs_numba
@NORMED
def test_a_q_network_acts_and_learns_as_in_float64(rng, n_obs, actions, hidden, activation, count):
    space = spaces.Discrete(actions)
    module, flat, head, policy = _with_norms(n_obs, space, hidden, activation, critic=False)
    total = 2 * count + 3
    rollout = some_rollout(rng, head, _obs(rng, total, n_obs), total)
    rows = rng.permutation(total)[:count]
    grad, stats = np.full_like(flat.vector, np.nan), np.full(4, np.nan)
    policy.gradient(rollout, rows, QTerms(1 / count, 0.25), grad, stats)
    twin = copy.deepcopy(module).double()
    q = twin.policy(torch.from_numpy(rollout.obs[rows]).double())
    error = q[torch.arange(count), rollout.action[rows, 0]] - torch.from_numpy(rollout.target[rows])
    expected = autograd(twin, (0.5 * error**2).mean())
    near = 5e-6 * max(np.abs(expected).max(), 0.1)
    np.testing.assert_allclose(grad, expected, rtol=3e-5, atol=near)
    wanted = (0.5 * error**2).mean().item(), error.abs().mean().item(), 0.25
    np.testing.assert_allclose(stats[[0, 2, 3]], wanted, rtol=1e-4)

    noise = np.where(rng.random((total, 1)) < 0.5, 0, BEST).astype(np.float32)
    action, logp, value = _act(policy, head, rollout.obs, noise)
    outputs = module(torch.from_numpy(rollout.obs))[0].detach().numpy()
    assert (action[:, 0] == np.where(noise[:, 0] < 0, outputs.argmax(1), 0)).all()
    assert (logp == 0).all() and (policy.best(rollout.obs)[:, 0] == outputs.argmax(1)).all()
    np.testing.assert_allclose(value, outputs.max(1), rtol=1e-5, atol=1e-5)
    only_value = np.zeros_like(value)
    policy.values(rollout.obs, only_value)
    assert np.array_equal(only_value, value)


@needs_numba
def test_layer_norm_does_not_make_a_row_depend_on_the_others(rng):
    _, _, head, policy = _with_norms(9, spaces.Discrete(5), (40, 33), "relu", critic=False)
    obs = _obs(rng, 200, 9)
    noise = np.full((200, 1), BEST, np.float32)
    _, _, value = _act(policy, head, obs, noise)
    for first, last in ((0, 1), (3, 20), (60, 131), (199, 200)):
        _, _, alone = _act(policy, head, obs[first:last].copy(), noise[first:last].copy())
        assert np.array_equal(alone, value[first:last])


def test_a_q_network_needs_its_objective_and_a_policy_its_own():
    head = ActionHead.of(TWO)
    for critic, objective in ((True, QObjective()), (False, None), (False, ClippedObjective(head))):
        module = ActorCritic(spaces.Box(-1, 1, (4,)), head, critic=critic)
        assert why_not_fused(module, FlatParameters(module), objective)
    module = ActorCritic(spaces.Box(-1, 1, (4,)), head, layer_norm=True)
    module.policy[1].eps = 1e-3
    assert why_not_fused(module, FlatParameters(module))


@needs_numba
@pytest.mark.parametrize("space", [TWO, MULTI, BOX])
def test_before_the_first_step_every_ratio_is_one(rng, space):
    _, flat, head, policy = _made(9, space, norm=True)
    obs = _obs(rng, 150, 9)
    action, logp, value = _act(policy, head, obs, _noise(rng, head, 150))
    rollout = some_rollout(rng, head, obs, 150)
    rollout = rollout._replace(action=action, logp=logp, value=value)
    tight = TERMS._replace(clip=1e-6)
    _, stats = _gradient(policy, flat, rollout, np.arange(150), tight)
    assert stats[STATS.index("clip_fraction")] == 0
    assert abs(stats[STATS.index("approx_kl")]) < 1e-12


@needs_numba
def test_the_order_of_a_batch_changes_its_gradient_by_rounding_alone(rng):
    _, flat, head, policy = _made()
    rollout = _near_rollout(rng, policy, head, 200, 4)
    rows = rng.permutation(200)[:130]
    grad, stats = _gradient(policy, flat, rollout, rows)
    mixed = rng.permutation(130)
    again, again_stats = _gradient(policy, flat, rollout, rows[mixed])
    np.testing.assert_allclose(again, grad, atol=1e-6)
    np.testing.assert_allclose(again_stats, stats, rtol=1e-9, atol=1e-12)
    # The same rows in the same order are the same bits, wherever they lie in the rollout.
    moved = rollout._replace(
        **{k: v[rows[mixed]] for k, v in rollout._asdict().items() if v is not None}
    )
    same, _ = _gradient(policy, flat, moved, np.argsort(mixed))
    assert np.array_equal(same, grad)


@needs_numba
def test_a_batch_twice_with_half_the_scale_is_the_same_batch(rng):
    _, flat, head, policy = _made()
    rollout = _near_rollout(rng, policy, head, 200, 4)
    rows = rng.permutation(200)[:64]
    grad, stats = _gradient(policy, flat, rollout, rows)
    half = TERMS._replace(scale=TERMS.scale / 2)
    twice, twice_stats = _gradient(policy, flat, rollout, np.concatenate([rows, rows]), half)
    np.testing.assert_allclose(twice, grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(twice_stats, stats, rtol=1e-9, atol=1e-12)


@needs_numba
@pytest.mark.parametrize("space", [TWO, MULTI, BOX])
@pytest.mark.parametrize("shared", [False, True])
def test_rows_do_not_depend_on_their_neighbours(rng, space, shared):
    _, _, head, policy = _made(5, space, (64, 37), shared)
    obs, noise = _obs(rng, 150, 5), _noise(rng, head, 150)
    whole = _act(policy, head, obs, noise)
    for size in (1, 3, 8, 16, 64, 100):
        pieces = pairwise([*range(0, 150, size), 150])
        parts = [_act(policy, head, obs[a:b], noise[a:b]) for a, b in pieces]
        for one, many in zip(whole, zip(*parts, strict=True), strict=True):
            assert np.array_equal(one, np.concatenate(many))


@needs_numba
@pytest.mark.parametrize("space", [TWO, BOX])
def test_bits_of_a_gradient_depend_on_nothing_but_its_rows(rng, space):
    module, flat, head, policy = _made(6, space, (64, 40))
    rollout = _near_rollout(rng, policy, head, 300, 6)
    rows = rng.permutation(300)[:77]
    grad, stats = _gradient(policy, flat, rollout, rows)

    def again(policy, rollout=rollout):
        other, other_stats = _gradient(policy, flat, rollout, rows)
        assert np.array_equal(other, grad) and np.array_equal(other_stats, stats)

    errors = []

    def in_thread():
        try:
            again(policy)
        except AssertionError as error:
            errors.append(error)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert not errors
    again(FusedPolicy(module, flat, head))
    for each in policy._work():
        each[:] = np.nan  # what others left there does not matter
    again(policy)
    _gradient(policy, flat, rollout, rng.permutation(300)[:5])
    again(policy)
    for shift in (1, 3):
        room = np.zeros(rollout.obs.size + shift, np.float32)
        moved = room[shift:].reshape(rollout.obs.shape)
        moved[...] = rollout.obs
        again(policy, rollout._replace(obs=moved))
        other = np.zeros(grad.size + shift, np.float32)[shift:]
        policy.gradient(rollout, rows, TERMS, other, np.zeros(len(STATS)))
        assert np.array_equal(other, grad)


@needs_numba
def test_it_reads_the_weights_of_now(rng):
    _, flat, head, policy = _made(norm=True)
    obs, noise = _obs(rng, 8, 4), _noise(rng, head, 8)
    before = _act(policy, head, obs, noise)[2]
    flat.vector *= np.float32(1.5)
    middle = _act(policy, head, obs, noise)[2]
    flat.module.normalizer.parts[0].merge(1000, np.full(4, 3.0), np.full(4, 500.0))
    after = _act(policy, head, obs, noise)[2]
    assert not np.array_equal(before, middle) and not np.array_equal(middle, after)
    expected = flat.module(torch.from_numpy(obs))[1].detach().numpy()
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-5)


@needs_numba
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("norm", [False, True])
def test_nan_comes_through(rng, activation, norm):
    _, flat, head, policy = _made(activation=activation, norm=norm)
    rollout = _near_rollout(rng, policy, head, 100, 4)
    rows = np.arange(100)
    rollout.obs[70, 2] = np.nan
    _, logp, value = _act(policy, head, rollout.obs, _noise(rng, head, 100))
    assert np.flatnonzero(np.isnan(logp)).tolist() == [70]
    assert np.flatnonzero(np.isnan(value)).tolist() == [70]
    grad, stats = _gradient(policy, flat, rollout, rows)
    assert np.isnan(grad).any() and np.isnan(stats[:2]).all()
    rollout.obs[70, 2] = 0
    for name in ("logp", "advantage", "target"):
        broken = getattr(rollout, name).copy()
        broken[99] = np.nan
        grad, stats = _gradient(policy, flat, rollout._replace(**{name: broken}), rows)
        assert np.isnan(grad).any() and np.isnan(stats).any()
    flat.vector[0] = np.inf
    grad, _ = _gradient(policy, flat, rollout, rows)
    assert activation == "tanh" or not np.isfinite(grad).all()


@needs_numba
def test_observations_of_other_types_and_shapes_are_taken(rng):
    _, _, head, policy = _made()
    obs, noise = _obs(rng, 6, 4), _noise(rng, head, 6)
    expected = _act(policy, head, obs, noise)
    compiled = len(fused_kernels.act.signatures)
    inside = np.zeros((3, 8, 4), np.float32)[1, 2:]  # rows of a larger array
    inside[:] = obs
    shapes = (inside, obs.astype(np.float64), obs.reshape(6, 2, 2), np.asfortranarray(obs))
    for other in shapes:
        for got, wanted in zip(_act(policy, head, other, noise), expected, strict=True):
            assert np.array_equal(got, wanted)
    assert len(fused_kernels.act.signatures) == compiled


@needs_numba
def test_what_does_not_fit_is_refused(rng):
    _, flat, head, policy = _made()
    rollout = _near_rollout(rng, policy, head, 20, 4)
    with pytest.raises(OptionError, match=r"\(6, 5\).*do not fit"):
        _act(policy, head, _obs(rng, 6, 5), _noise(rng, head, 6))
    with pytest.raises(OptionError, match="do not fit"):
        _act(policy, head, _obs(rng, 6, 4), _noise(rng, head, 7))
    with pytest.raises(OptionError, match="do not fit"):
        policy.values(rollout.obs, np.zeros(19, np.float32))
    with pytest.raises(OptionError, match="do not fit"):
        _gradient(policy, flat, rollout._replace(logp=rollout.logp[:-1]), np.arange(3))
    for rows in ([3, 20], [-1]):
        with pytest.raises(OptionError, match="cannot be learnt from"):
            _gradient(policy, flat, rollout, np.array(rows))
    rollout.action[7] = 2
    with pytest.raises(OptionError, match="row 7 cannot be learnt from"):
        _gradient(policy, flat, rollout, np.arange(20))


@needs_numba
def test_a_head_of_other_actions_is_refused():
    module = _small()
    with pytest.raises(OptionError, match="2 outputs do not fit"):
        FusedPolicy(module, FlatParameters(module), ActionHead.of(MULTI))


@needs_numba
def test_tanh_is_exact_to_some_units_in_the_last_place(rng):
    edges = [0, -0.0, 1e-30, 4e-4, 7.905311, 7.9054, 9, 1e30, np.inf]
    x = np.concatenate([rng.normal(0, 3, 10_000), 10 ** rng.uniform(-10, 1, 10_000), edges])
    x = np.concatenate([x, -x]).astype(np.float32)
    expected = np.tanh(x.astype(np.float64))
    got = x.copy()
    tanh(got)
    np.testing.assert_allclose(got, expected, rtol=6e-7)
    assert np.abs(got).max() <= 1
    assert np.array_equal(got[: x.size // 2], -got[x.size // 2 :])
    # A lane's result does not depend on where it is in the vector.
    for size in (1, 7, 16):
        piece = x[100 : 100 + size].copy()
        tanh(piece)
        assert np.array_equal(piece, got[100 : 100 + size])
    nothing = np.full(3, np.nan, np.float32)
    tanh(nothing)
    assert np.isnan(nothing).all()


def _small(space=None, hidden=(8,), **options):
    head = ActionHead.of(TWO)
    return ActorCritic(spaces.Box(-1, 1, (4,)) if space is None else space, head, hidden, **options)


def _changed(change):
    module = _small()
    change(module)
    return module


def _tied(module):
    module.value[0].weight = module.policy[0].weight


class _Own(ActorCritic):
    pass


@needs_numba
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (_small(), None),
        (_small(hidden=()), None),
        (_small(shared=True, normalize_obs=True), None),
        (_Own(spaces.Box(-1, 1, (4,)), ActionHead.of(TWO)), "not the standard"),
        (nn.Linear(4, 2), "Linear is not the standard"),
        (_small(spaces.Discrete(5)), None),
        (_small(spaces.Box(0, 255, (40, 40, 3), np.uint8)), "through NatureCNN"),
        (_small(hidden=(64, 256)), None),
        (_small(spaces.Box(-1, 1, (300,))), None),
        (_changed(lambda m: m.policy.__setitem__(1, nn.GELU())), None),
        (_changed(lambda m: m.policy.__setitem__(1, nn.GELU("tanh"))), "has unusual settings"),
        (_changed(lambda m: m.policy.__setitem__(1, nn.ELU())), "ELU has no"),
        (_changed(lambda m: setattr(m, "value", nn.Sequential(*m.value))), "Sequential has no"),
        (_changed(lambda m: m.policy.append(nn.Tanh())), "does not end with"),
        (_changed(lambda m: m.policy.insert(1, nn.Tanh())), "does not follow"),
        (_changed(lambda m: m.policy.__setitem__(0, nn.Linear(4, 8, bias=False))), "no bias"),
        (_changed(lambda m: m.policy[0].requires_grad_(False)), "frozen"),
        (_changed(lambda m: m.value.register_forward_hook(lambda *_: None)), "hooks"),
        (_changed(_tied), "shared"),
    ],
)
def test_which_networks_are_taken(module, reason):
    flat = FlatParameters(module)
    said = why_not_fused(module, flat)
    assert said is None if reason is None else reason in said
    if reason is not None:
        with pytest.raises(OptionError, match="cannot be compiled"):
            FusedPolicy(module, flat, ActionHead.of(TWO))


def test_without_numba_no_network_is_taken(monkeypatch):
    monkeypatch.setattr(fused_policy, "FUSED", False)
    module = _small()
    assert "numba" in why_not_fused(module, FlatParameters(module))


@needs_numba
@pytest.mark.parametrize("space", [spaces.Discrete(6, start=1), spaces.MultiDiscrete([3, 4])])
def test_one_hot_observations_are_compiled_too(rng, space):
    head = ActionHead.of(TWO)
    module = ActorCritic(space, head, (8, 5), generator=torch.Generator().manual_seed(0))
    flat = FlatParameters(module)
    flat.vector += rng.normal(0, 0.1, flat.vector.size).astype(np.float32)
    policy, plain = FusedPolicy(module, flat, head), TorchPolicy(module, flat, head)
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(70)])
    rollout = some_rollout(rng, head, obs, 70)
    rows = rng.permutation(70)[:66]
    noise = _noise(rng, head, 70)
    for found, wanted in zip(
        _act(policy, head, obs, noise), _act(plain, head, obs, noise), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    found, wanted = (_gradient(each, flat, rollout, rows) for each in (policy, plain))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-6)
    for wrong in (obs + 100, obs - 100):
        with pytest.raises(OptionError, match="is not one of"):
            policy.best(wrong)


MASKED = spaces.Dict(
    {
        "b": spaces.Box(-1, 1, (2, 3)),
        "action_mask": spaces.Box(0, 1, (9,), np.int8),
        "a": spaces.Discrete(4),
    }
)


def _masked_obs(rng, n):
    mask = (rng.random((n, 9)) < 0.6).astype(np.int8)
    mask[:, [0, 3, 4]] = 1  # each number of the action has a legal choice
    vectors = rng.normal(size=(n, 2, 3)).astype(np.float32)
    return {"b": vectors, "action_mask": mask, "a": rng.integers(0, 4, n)}


@needs_numba
@pytest.mark.parametrize("space", [spaces.Discrete(9), MULTI])
@pytest.mark.parametrize("shared", [False, True])
def test_parts_of_an_observation_and_masks_are_compiled_as_torch_has_them(rng, space, shared):
    head = ActionHead.of(space)
    generator = torch.Generator().manual_seed(0)
    module = ActorCritic(MASKED, head, (24, 9), shared, generator=generator)
    flat = FlatParameters(module)
    flat.vector += rng.normal(0, 0.3, flat.vector.size).astype(np.float32)
    assert why_not_fused(module, flat) is None
    policy, plain = FusedPolicy(module, flat, head), TorchPolicy(module, flat, head)
    obs, noise = _masked_obs(rng, 150), _noise(rng, head, 150)
    drawn, expected = _act(policy, head, obs, noise), _act(plain, head, obs, noise)
    for found, wanted in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    chosen = drawn[0] + np.cumsum([0, *head.sizes[:-1]])
    assert np.take_along_axis(obs["action_mask"], chosen, axis=1).all(), "only legal actions"
    np.testing.assert_array_equal(policy.best(obs), plain.best(obs))
    rollout = some_rollout(rng, head, obs, 150)._replace(action=drawn[0], logp=drawn[1])
    rows = rng.permutation(150)[:130]
    found, wanted = (_gradient(each, flat, rollout, rows) for each in (policy, plain))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(OptionError, match="row 150 cannot be learnt from"):
        _gradient(policy, flat, rollout, np.array([3, 150]))


@needs_numba
def test_illegal_actions_are_left_out_of_compiled_q_values(rng):
    head = ActionHead.of(spaces.Discrete(9))
    module = ActorCritic(MASKED, head, (16,), critic=False, layer_norm=True)
    flat = FlatParameters(module)
    objective = QObjective()
    policy = FusedPolicy(module, flat, head, objective)
    plain = TorchPolicy(module, flat, head, objective)
    obs = _masked_obs(rng, 40)
    values, expected = np.zeros((2, 40), np.float32)
    policy.values(obs, values)
    plain.values(obs, expected)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(policy.best(obs), plain.best(obs))
    assert np.take_along_axis(obs["action_mask"], policy.best(obs), axis=1).all()
