"""Any module as PPO's policy: what it does, its gradient, its bits."""

import weakref

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import autograd, distribution_terms, loss_and_stats, some_rollout
from torch import nn

from muster import OptionError
from muster.nets import FlatParameters
from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic
from muster.nets.policy_net import STATS, LossTerms
from muster.nets.q_network import as_tensors
from muster.nets.torch_policy import TorchPolicy

DISCRETE = ActionHead.of(spaces.Discrete(5))
MULTI = ActionHead.of(spaces.MultiDiscrete([2, 3, 4]))
BOX = ActionHead.of(spaces.Box(-1, 1, (3,)))
HEADS = pytest.mark.parametrize("head", [DISCRETE, MULTI, BOX], ids=["discrete", "multi", "box"])
VECTOR = spaces.Box(-1, 1, (6,))
HWC = spaces.Box(0, 255, (40, 40, 3), np.uint8)
CHW = spaces.Box(0, 255, (3, 40, 40), np.uint8)
DICT = spaces.Dict(
    image=spaces.Box(0, 255, (12, 12, 3), np.uint8), speed=VECTOR, kind=spaces.Discrete(4)
)
TERMS = LossTerms(scale=1 / 20, clip=0.2, value_clip=0.3, value_coef=0.5, entropy_coef=0.01)


def _sample(space, rng, n):
    if isinstance(space, spaces.Dict):
        return {key: _sample(part, rng, n) for key, part in space.items()}
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, space.n, n)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (n, *space.shape), dtype=np.uint8)
    return rng.normal(size=(n, *space.shape)).astype(np.float32)


def _rows_of(obs, rows):
    return {k: v[rows] for k, v in obs.items()} if isinstance(obs, dict) else obs[rows]


def _made(space, head, seed=0, **options):
    """Return a module whose logits differ visibly, with its vector and its policy."""
    generator = torch.Generator().manual_seed(seed)
    module = ActorCritic(space, head, (16,), generator=generator)
    flat = FlatParameters(module)
    last = flat.names_and_slices["policy.2.weight"]
    flat.vector[last] *= 100
    return module, flat, TorchPolicy(module, flat, head, **options)


def _acted(policy, head, obs, rng, n):
    noise = rng.random((n, head.width)) if not head.gaussian else rng.normal(size=(n, head.width))
    action = np.zeros((n, head.width), head.dtype)
    logp, value = np.zeros((2, n), np.float32)
    policy.act(obs, noise.astype(np.float32), action, logp, value)
    return action, logp, value


def _gradient(policy, flat, rollout, rows, terms=TERMS):
    grad = np.full_like(flat.vector, np.nan)
    stats = np.full(len(STATS), np.nan)
    policy.gradient(rollout, rows, terms, grad, stats)
    return grad, stats


@HEADS
@pytest.mark.parametrize("space", [VECTOR, HWC, CHW, DICT], ids=["vector", "hwc", "chw", "dict"])
@pytest.mark.parametrize("value_clip", [0.0, 0.3])
def test_the_gradient_is_that_of_a_plain_loss(rng, space, head, value_clip):
    module, flat, policy = _made(space, head)
    obs = _sample(space, rng, 30)
    rollout = some_rollout(rng, head, obs, 30)
    terms = TERMS._replace(value_clip=value_clip)
    for _ in range(2):  # the second must not add to the first
        rows = rng.permutation(30)[:20]
        outputs, value = module(as_tensors(_rows_of(obs, rows)))
        loss, expected_stats = loss_and_stats(head, outputs, value, rollout, rows, terms)
        expected = autograd(module, loss)
        grad, stats = _gradient(policy, flat, rollout, rows, terms)
        np.testing.assert_allclose(grad, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(stats, expected_stats, rtol=1e-4, atol=1e-6)
    assert 0 < stats[4] < 1  # some ratios were cut, some not


@HEADS
@pytest.mark.parametrize("space", [VECTOR, HWC, DICT], ids=["vector", "image", "dict"])
def test_in_the_first_epoch_every_ratio_is_one(rng, space, head):
    _, flat, policy = _made(space, head)
    obs = _sample(space, rng, 24)
    action, logp, value = _acted(policy, head, obs, rng, 24)
    rollout = some_rollout(rng, head, obs, 24)._replace(action=action, logp=logp, value=value)
    for rows in (np.arange(24), rng.permutation(24)[:7]):
        _, stats = _gradient(policy, flat, rollout, rows, TERMS._replace(scale=1 / len(rows)))
        assert stats[3] < 1e-10
        assert stats[4] == 0
    values = np.zeros(24, np.float32)
    policy.values(obs, values)
    assert np.array_equal(values, value)


@HEADS
def test_actions_are_drawn_with_their_probabilities(rng, head):
    module, _, policy = _made(VECTOR, head)
    obs = np.repeat(_sample(VECTOR, rng, 1), 4000, axis=0)
    action, logp, value = _acted(policy, head, obs, rng, 4000)
    with torch.no_grad():
        outputs, worth = module(torch.from_numpy(obs))
        expected, _ = distribution_terms(head, outputs, torch.from_numpy(action))
    np.testing.assert_allclose(logp, expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value, worth.numpy(), rtol=1e-5, atol=1e-6)
    row = outputs[0].numpy()
    if head.gaussian:
        np.testing.assert_allclose(action.mean(0), row[:3], atol=0.08)
        np.testing.assert_allclose(action.std(0), np.exp(row[3:]), atol=0.08)
        np.testing.assert_allclose(policy.best(obs[:2]), outputs[:2, :3].numpy(), rtol=1e-5)
        return
    start = 0
    for i, size in enumerate(head.sizes):
        shares = np.bincount(action[:, i], minlength=size) / 4000
        p = torch.softmax(outputs[0, start : start + size], 0).numpy()
        np.testing.assert_allclose(shares, p, atol=0.04)
        assert policy.best(obs[:2])[1, i] == p.argmax()
        start += size


@pytest.mark.parametrize("space", [VECTOR, CHW, DICT], ids=["vector", "image", "dict"])
def test_the_same_inputs_give_the_same_bits_wherever_they_lie(rng, space):
    obs = _sample(space, rng, 33)
    rollout = some_rollout(rng, BOX, obs, 33)
    noise = rng.normal(size=(33, 3)).astype(np.float32)
    seen = []
    for shift in range(4):
        _, flat, policy = _made(space, BOX)
        moved = rollout._replace(obs=_shifted(obs, shift))
        grad, stats = _gradient(policy, flat, moved, np.arange(33))
        action = np.zeros((33, 3), np.float32)
        logp, value = np.zeros((2, 33), np.float32)
        policy.act(moved.obs, noise, action, logp, value)
        seen.append(b"".join(x.tobytes() for x in (grad, stats, action, logp, value)))
    assert len(set(seen)) == 1


def _shifted(obs, by):
    """Return a copy that begins `by` elements after where it would."""
    if isinstance(obs, dict):
        return {key: _shifted(part, by) for key, part in obs.items()}
    room = np.zeros(obs.size + by, obs.dtype)
    room[by:] = obs.reshape(-1)
    return room[by:].reshape(obs.shape)


def test_dropout_and_batch_norm_do_not_part_acting_from_learning(rng):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Dropout(0.5))
            self.outputs, self.value = nn.Linear(32, 5), nn.Linear(32, 1)

        def forward(self, obs):
            features = self.body(obs)
            return self.outputs(features), self.value(features)  # value [B, 1]

    module = Noisy()
    flat = FlatParameters(module)
    policy = TorchPolicy(module, flat, DISCRETE)
    module.train()  # as somebody who looks at it may leave it
    obs = _sample(VECTOR, rng, 16)
    action, logp, value = _acted(policy, DISCRETE, obs, rng, 16)
    rollout = some_rollout(rng, DISCRETE, obs, 16)
    rollout = rollout._replace(action=action, logp=logp, value=value)
    module.train()
    _, stats = _gradient(policy, flat, rollout, np.arange(9))
    assert stats[3] < 1e-10
    assert module.body[1].num_batches_tracked == 0


def test_channels_last_is_the_same_network(rng):
    results = []
    obs = _sample(CHW, rng, 10)
    rollout = some_rollout(rng, DISCRETE, obs, 10)
    for channels_last in (False, True):
        module, flat, policy = _made(CHW, DISCRETE, channels_last=channels_last)
        formats = []
        module.encoder.layers[0].register_forward_hook(
            lambda _module, _args, out, formats=formats: formats.append(
                out.is_contiguous(memory_format=torch.channels_last)
            )
        )
        results.append(_gradient(policy, flat, rollout, np.arange(10)))
        assert formats == [channels_last]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_in_bfloat16_acting_and_learning_still_agree(rng):
    module, flat, policy = _made(HWC, DISCRETE, bf16=True)
    obs = _sample(HWC, rng, 24)
    types = []
    module.encoder.layers[1].register_forward_hook(lambda _m, _a, out: types.append(out.dtype))
    action, logp, value = _acted(policy, DISCRETE, obs, rng, 24)
    rollout = some_rollout(rng, DISCRETE, obs, 24)
    rollout = rollout._replace(action=action, logp=logp, value=value)
    for size in (1, 7, 24):
        rows = rng.permutation(24)[:size]
        terms = TERMS._replace(clip=1e-2, scale=1 / size)
        grad, stats = _gradient(policy, flat, rollout, rows, terms)
        assert stats[4] == 0  # no ratio is further from 1 than 1e-2
        assert all(grad[piece].any() for piece in flat.names_and_slices.values())
    exact = _gradient(TorchPolicy(module, flat, DISCRETE), flat, rollout, rows, terms)[0]
    assert not np.array_equal(grad, exact)  # it is another arithmetic,
    assert np.linalg.norm(grad - exact) < 0.05 * np.linalg.norm(exact)  # of the same gradient
    assert set(types) == {torch.float32}


def test_float64_observations_and_read_only_memory_go_through(rng):
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.outputs, self.value = nn.Linear(6, 5), nn.Linear(6, 1)

        def forward(self, obs):
            return self.outputs(obs), self.value(obs)

    module = Plain()
    flat = FlatParameters(module)
    policy = TorchPolicy(module, flat, DISCRETE)
    obs = _sample(VECTOR, rng, 8)
    rollout = some_rollout(rng, DISCRETE, obs, 8)
    expected = _gradient(policy, flat, rollout, np.arange(8))[0]
    frozen = obs.copy()
    frozen.flags.writeable = False
    for same in (obs.astype(np.float64), frozen, np.asfortranarray(obs)):
        got = _gradient(policy, flat, rollout._replace(obs=same), np.arange(8))[0]
        np.testing.assert_array_equal(got, expected)
        assert np.array_equal(policy.best(same), policy.best(obs))


def test_a_gradient_is_written_where_it_is_wanted_and_let_go_of(rng):
    module, flat, policy = _made(VECTOR, BOX)
    rollout = some_rollout(rng, BOX, _sample(VECTOR, rng, 8), 8)
    first, _ = _gradient(policy, flat, rollout, np.arange(8))
    kept = first.copy()
    second, _ = _gradient(policy, flat, rollout, np.arange(4))
    assert np.array_equal(first, kept)
    assert not np.array_equal(first, second)
    assert all(parameter.grad is None for parameter in module.parameters())
    alive = weakref.ref(second)
    del second
    assert alive() is None  # memory that workers share can be closed


def test_rows_and_actions_that_do_not_exist_are_named(rng):
    _, flat, policy = _made(VECTOR, DISCRETE)
    rollout = some_rollout(rng, DISCRETE, _sample(VECTOR, rng, 8), 8)
    rollout.action[3] = 5
    with pytest.raises(OptionError, match=r"row 3 of 8 .* its action does not\n.*\(5,\)\n"):
        _gradient(policy, flat, rollout, np.arange(8))


def test_compiled_goes_through_torch_compile(rng, monkeypatch):
    calls = []

    def compile_(module):
        calls.append(module)
        return lambda obs: module(obs)

    monkeypatch.setattr(torch, "compile", compile_)
    module, _, policy = _made(VECTOR, BOX, compiled=True)
    assert calls == [module]
    policy.best(_sample(VECTOR, rng, 3))
