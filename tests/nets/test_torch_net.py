"""Any module behind the same face: values, gradients in the flat vector, modes."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from muster import OptionError
from muster.nets import FlatParameters, TorchNet, build_q_network


def _gradient(module, obs, dq):
    q = module(torch.from_numpy(obs))
    named = list(module.parameters())
    gradients = torch.autograd.grad(q, named, torch.from_numpy(dq), allow_unused=True)
    pairs = zip(gradients, named, strict=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]
    ).numpy()


class WithSpare(nn.Module):
    """A network with a parameter that is frozen and one that nothing uses."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(3))
        self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
        self.scale = nn.Parameter(torch.full((1,), 2.0), requires_grad=False)

    def forward(self, obs):
        return self.body(obs) * self.scale


def test_values_and_gradients_are_autograds(rng):
    module = WithSpare()
    flat = FlatParameters(module)
    net = TorchNet(module, flat)
    grad = np.full_like(flat.vector, np.nan)
    module.scale.requires_grad_(True)
    for _ in range(2):  # the second must not add to the first
        obs, dq = (rng.normal(size=(5, n)).astype(np.float32) for n in (4, 2))
        expected = module(torch.from_numpy(obs)).detach().numpy()
        np.testing.assert_array_equal(net.predict(obs), expected)
        np.testing.assert_array_equal(net.forward(obs), expected)
        net.backward(dq, grad)
        np.testing.assert_allclose(grad, _gradient(module, obs, dq), rtol=1e-5, atol=1e-6)


def test_what_is_frozen_or_unused_has_no_gradient(rng):
    module = WithSpare()
    flat = FlatParameters(module)
    net = TorchNet(module, flat)
    grad = np.full_like(flat.vector, np.nan)
    net.forward(rng.normal(size=(5, 4)).astype(np.float32))
    net.backward(np.ones((5, 2), np.float32), grad)
    assert not grad[flat.names_and_slices["unused"]].any()
    assert not grad[flat.names_and_slices["scale"]].any()
    assert grad[flat.names_and_slices["body.0.weight"]].any()


def test_a_new_gradient_vector_is_written_from_then_on(rng):
    module = nn.Linear(4, 2)
    flat = FlatParameters(module)
    net = TorchNet(module, flat)
    obs = rng.normal(size=(5, 4)).astype(np.float32)
    vectors = [np.zeros_like(flat.vector) for _ in range(2)]
    for grad in vectors:
        net.forward(obs)
        net.backward(np.ones((5, 2), np.float32), grad)
    assert vectors[0].any()
    assert np.array_equal(*vectors)


def test_backward_goes_once_per_forward():
    module = nn.Linear(4, 2)
    flat = FlatParameters(module)
    net = TorchNet(module, flat)
    net.forward(np.ones((5, 4), np.float32))
    dq, grad = np.ones((5, 2), np.float32), np.zeros_like(flat.vector)
    net.backward(dq, grad)
    with pytest.raises(OptionError, match="the last forward, and be used once"):
        net.backward(dq, grad)


def test_acting_is_in_evaluation_mode_and_learning_in_training_mode():
    module = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    net = TorchNet(module, FlatParameters(module))
    obs = np.ones((50, 4), np.float32)
    mean = module[2].running_mean.clone()
    assert np.array_equal(net.predict(obs), net.predict(obs))
    assert torch.equal(module[2].running_mean, mean)
    assert not np.array_equal(net.forward(obs), net.forward(obs))
    assert not torch.equal(module[2].running_mean, mean)
    assert np.array_equal(net.predict(obs), net.predict(obs))


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_and_dicts_go_through(rng, channels_last):
    shape = (40, 40, 3) if channels_last else (3, 40, 40)
    image = spaces.Box(0, 255, shape, np.uint8)
    module = build_q_network(spaces.Dict(image=image, speed=spaces.Box(-1, 1, (2,))), 3, (16,))
    flat = FlatParameters(module)
    net = TorchNet(module, flat)
    obs = {
        "image": rng.integers(0, 256, (4, *shape), dtype=np.uint8),
        "speed": rng.normal(size=(4, 2)),  # float64, as some environments have it
    }
    grad = np.zeros_like(flat.vector)
    assert net.forward(obs).shape == (4, 3)
    net.backward(np.ones((4, 3), np.float32), grad)
    assert all(grad[piece].any() for piece in flat.names_and_slices.values())


def test_memory_that_torch_does_not_take_is_copied():
    module = nn.Linear(4, 2)
    net = TorchNet(module, FlatParameters(module))
    obs = np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = net.predict(obs)
    frozen = obs.copy()
    frozen.flags.writeable = False
    for same in (frozen, np.asfortranarray(obs), obs[::-1][::-1], obs.astype(np.float64)):
        assert np.array_equal(net.predict(same), expected)
    assert np.array_equal(net.predict(obs[::-1]), expected[::-1])
