"""Compiled convolutions: the gradient of torch, and bits that depend on no other image."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import autograd, loss_and_stats, some_rollout
from torch import nn

from muster import OptionError
from muster.nets import FlatParameters
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy, make_policy_net
from muster.nets.fused_images import FusedImages, why_not_fused_images
from muster.nets.policy_net import STATS, LossTerms
from muster.nets.tile import FUSED
from muster.nets.torch_policy import TorchPolicy

pytestmark = pytest.mark.skipif(not FUSED, reason="numba cannot compile here")

HEADS = {
    "discrete": ActionHead.of(spaces.Discrete(3)),
    "box": ActionHead.of(spaces.Box(-1, 1, (2,))),
}
SHAPES = [(4, 84, 84), (40, 44, 3), (37, 36), (1, 60, 36), (20, 21, 3), (5, 36, 37), (64, 64, 3)]
MODELS = ["nature_cnn", "impala_cnn"]
TERMS = LossTerms(1 / 24, 0.2, 0.0, 0.5, 0.01)
ROWS = 24


def _made(head, shape=(4, 40, 36), model="nature_cnn", **options):
    space = spaces.Box(0, 255, shape, np.uint8)
    module = build_policy(space, head, model=model, seed=3, **options)
    with torch.no_grad():
        for name, each in module.named_parameters():
            if name.endswith("bias"):
                each.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
        getattr(module, "top", module).policy[-1].weight *= 30
    flat = FlatParameters(module)
    return module, flat, FusedImages(module, flat, head)


def _rollout(rng, head, shape=(4, 40, 36)):
    obs = rng.integers(0, 256, (ROWS, *shape), dtype=np.uint8)
    return some_rollout(rng, head, obs, ROWS)


def _gradient(policy, flat, rollout, rows, terms=TERMS):
    grad = np.full_like(flat.vector, np.nan)
    stats = np.full(len(STATS), np.nan)
    policy.gradient(rollout, rows, terms, grad, stats)
    return grad, stats


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("model", MODELS)
def test_the_gradient_is_that_of_autograd_in_float64(head, shape, model):
    module, flat, policy = _made(head, shape, model)
    # In these images no two pixels under a pool are equal in float32 and differ in float64.
    rollout = _rollout(np.random.default_rng(2), head, shape)
    rows = np.array([11, 2, 23, 3, 7])
    exact = copy.deepcopy(module).double()
    image = exact.encoder.input(torch.from_numpy(rollout.obs[rows])).double()
    top = getattr(exact, "top", exact)
    features = top.trunk(exact.encoder.layers(image).flatten(1))
    outputs = top.policy(features)
    if head.gaussian:
        outputs = torch.cat([outputs, top.log_std.expand_as(outputs)], dim=1)
    value = top.value(features)
    loss, expected_stats = loss_and_stats(head, outputs, value, rollout, rows, TERMS)
    expected = autograd(exact, loss)
    grad, stats = _gradient(policy, flat, rollout, rows)
    assert np.abs(grad - expected).max() < 3e-6 * np.abs(expected).max()
    np.testing.assert_allclose(stats, expected_stats, rtol=2e-5, atol=1e-6)
    for name, piece in flat.names_and_slices.items():
        assert np.abs(grad[piece] - expected[piece]).max() < 1e-4 * np.abs(expected).max(), name


@pytest.mark.parametrize(
    "options", [{}, {"critic": False}, {"model": "impala_cnn"}, {"activation": "tanh"}], ids=str
)
def test_it_acts_like_torch(rng, options):
    head = HEADS["discrete"]
    module, flat, policy = _made(head, **options)
    theirs = TorchPolicy(module, flat, head)
    obs = _rollout(rng, head).obs
    values, expected = np.zeros((2, ROWS), np.float32)
    policy.values(obs, values)
    theirs.values(obs, expected)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(policy.best(obs), theirs.best(obs))


@pytest.mark.parametrize("model", MODELS)
def test_slots_together_have_the_bits_of_each_alone(rng, model):
    head = HEADS["box"]
    _, flat, policy = _made(head, model=model)
    rollout = _rollout(rng, head)
    rows = rng.permutation(ROWS).reshape(4, 6)
    alone = [_gradient(policy, flat, rollout, mine) for mine in rows]
    for some in (slice(0, 4), slice(1, 3)):
        count = some.stop - some.start
        grads = np.full((count, flat.vector.size), np.nan, np.float32)
        stats = np.full((count, len(STATS)), np.nan)
        policy.gradients(rollout, rows[some], TERMS, grads, stats)
        for k, (grad, sums) in enumerate(alone[some]):
            assert np.array_equal(grads[k], grad)
            assert np.array_equal(stats[k], sums)


@pytest.mark.parametrize("model", MODELS)
def test_the_bits_of_an_image_do_not_depend_on_those_beside_it(rng, model):
    head = HEADS["box"]
    _, _, policy = _made(head, model=model)
    obs = _rollout(rng, head).obs
    noise = rng.normal(size=(ROWS, 2)).astype(np.float32)
    action, (logp, value) = np.zeros((ROWS, 2), np.float32), np.zeros((2, ROWS), np.float32)
    policy.act(obs, noise, action, logp, value)
    for rows in (slice(0, 1), slice(3, 20), slice(22, 24)):
        count = rows.stop - rows.start
        mine, (chance, worth) = np.zeros((count, 2), np.float32), np.zeros((2, count), np.float32)
        policy.act(obs[rows], noise[rows], mine, chance, worth)
        assert np.array_equal(mine, action[rows])
        assert np.array_equal(chance, logp[rows]) and np.array_equal(worth, value[rows])


def test_rows_that_do_not_exist_and_images_of_another_size_are_refused(rng):
    head = HEADS["discrete"]
    _, flat, policy = _made(head)
    rollout = _rollout(rng, head)
    with pytest.raises(OptionError, match="row 24 cannot be learnt from"):
        _gradient(policy, flat, rollout, np.array([3, 24]))
    with pytest.raises(OptionError, match="do not fit the network"):
        policy.best(np.zeros((2, 4, 40, 40), np.uint8))


def test_which_networks_of_images_are_compiled():
    head = HEADS["discrete"]
    module, flat, _ = _made(head)
    assert isinstance(make_policy_net(module, flat, head), FusedImages)
    assert isinstance(make_policy_net(module, flat, head, bf16=True), TorchPolicy)
    module.trunk.append(nn.Dropout(0.5))
    assert "Dropout" in why_not_fused_images(module, flat)
    narrow = build_policy(spaces.Box(0, 255, (12, 2), np.uint8), head)
    assert "has unusual settings" in why_not_fused_images(narrow, FlatParameters(narrow))


@pytest.mark.parametrize("model", MODELS)
def test_a_weight_that_is_not_a_number_is_seen_in_what_is_made_of_it(rng, model):
    head = HEADS["discrete"]
    module, _, policy = _made(head, model=model)
    with torch.no_grad():
        first = next(part for part in module.modules() if isinstance(part, nn.Conv2d))
        first.bias[0] = float("nan")
    values = np.zeros(ROWS, np.float32)
    policy.values(_rollout(rng, head).obs, values)
    assert np.isnan(values).all()
