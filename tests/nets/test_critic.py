"""Critics: by hand as by torch, gradients by weights and by actions, and layers with two modes."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from muster.nets import FlatParameters, FusedNet
from muster.nets.critic import Critic, CriticGroup, make_critic_net
from muster.nets.flat import aligned
from muster.nets.q_network import as_tensors
from muster.nets.tile import FUSED
from muster.nets.torch_net import TorchNet

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
DICT = spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3)})


def batch_of(space, rng, rows=7):
    if isinstance(space, spaces.Dict):
        return {key: batch_of(part, rng, rows) for key, part in space.items()}
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, space.n, rows)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (rows, *space.shape), np.uint8)
    return rng.normal(size=(rows, *space.shape)).astype(np.float32)


def made(critic):
    """Return the parameters of a critic that is alone, and what runs it."""
    group = CriticGroup([critic])
    flat = FlatParameters(group)
    return flat, make_critic_net(group, flat)


@pytest.mark.parametrize(
    ("space", "options", "kind"),
    [
        (VECTOR, {}, FusedNet),
        (VECTOR, {"outputs": 25}, FusedNet),
        (VECTOR, {"activation": "tanh", "hidden": (16,)}, FusedNet),
        (VECTOR, {"layer_norm": True}, FusedNet),
        (IMAGE, {"hidden": (16,)}, TorchNet),
        (DICT, {"hidden": (16,)}, TorchNet),
        (VECTOR, {"model": "mlp", "hidden": (16,)}, TorchNet),
    ],
)
def test_values_and_both_gradients_are_those_of_autograd(rng, space, options, kind):
    critics = [Critic(space, 2, **{"hidden": (32, 16), **options}, seed=k) for k in range(2)]
    group = CriticGroup(critics)
    plain = copy.deepcopy(group)
    flat = FlatParameters(group)
    net = make_critic_net(group, flat)
    assert type(net) is (kind if FUSED else TorchNet)
    obs, action = batch_of(space, rng), rng.uniform(-1, 1, (7, 2)).astype(np.float32)
    dvalues = rng.normal(size=(7, 2 * options.get("outputs", 1))).astype(np.float32)

    tensor = torch.tensor(action, requires_grad=True)
    wanted = plain((as_tensors(obs), tensor))
    wanted.backward(torch.from_numpy(dvalues))
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(net.predict(obs, action), wanted.detach(), **close)
    np.testing.assert_allclose(net.forward(obs, action), wanted.detach(), **close)
    np.testing.assert_allclose(net.input_gradient(dvalues), tensor.grad, **close)
    net.forward(obs, action)
    grad = aligned(flat.vector.size)
    net.backward(dvalues, grad)
    for name, parameter in plain.named_parameters():
        found = grad[flat.names_and_slices[name]].reshape(parameter.shape)
        np.testing.assert_allclose(found, parameter.grad, **close, err_msg=name)


@pytest.mark.skipif(not FUSED, reason="torch gives one gradient of each forward")
def test_a_gradient_by_actions_changes_nothing_that_a_gradient_by_weights_needs(rng):
    flat, net = made(Critic(VECTOR, 2, (32, 32)))
    obs, action = batch_of(VECTOR, rng), rng.uniform(-1, 1, (7, 2)).astype(np.float32)
    dvalues = np.ones((7, 1), np.float32)
    one, other = aligned(flat.vector.size), aligned(flat.vector.size)
    net.forward(obs, action)
    net.backward(dvalues, one)
    net.input_gradient(dvalues)
    net.backward(dvalues, other)
    assert one.any() and np.array_equal(one, other)


def test_dropout_is_decided_by_the_seed_and_goes_on_with_the_weights(rng):
    obs, action = batch_of(VECTOR, rng), np.zeros((7, 2), np.float32)

    def make(seed=1):
        return made(Critic(VECTOR, 2, (32, 32), dropout=0.5, layer_norm=True, seed=seed))

    (flat, net), (_, twin), (saved, resumed) = make(), make(), make()
    torch.manual_seed(7)
    first = net.forward(obs, action)
    torch.manual_seed(8)
    assert np.array_equal(first, twin.forward(obs, action)), "torch's generator is not used"
    second = net.forward(obs, action)
    assert not np.array_equal(first, second)
    assert np.array_equal(net.predict(obs, action), net.predict(obs, action))
    saved.load_state_dict(flat.state_dict())
    assert np.array_equal(net.forward(obs, action), resumed.forward(obs, action))


def test_dropout_leaves_out_as_much_as_it_says_and_keeps_the_mean():
    from muster.nets.dropout import SeededDropout

    layer = SeededDropout(0.3, torch.Generator().manual_seed(0)).train()
    made = layer(torch.ones(200, 200))
    assert (made == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert made.mean().item() == pytest.approx(1.0, abs=0.02)


def test_batch_norm_learns_its_means_in_training_only(rng):
    flat, net = made(Critic(VECTOR, 2, (16,), batch_norm=True))
    obs, action = batch_of(VECTOR, rng, 64), rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    before = flat.sha256()
    net.predict(obs, action)
    net.forward(obs, action, training=False)
    assert flat.sha256() == before
    net.forward(obs, action)
    assert flat.sha256() != before
