"""The hand-written forward and backward against autograd in float64, and who gets them."""

import copy
import threading

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from muster import OptionError
from muster.nets import (
    MLP,
    DuelingHead,
    FlatParameters,
    Flatten,
    FusedNet,
    TorchNet,
    build_q_network,
    make_net,
)
from muster.nets.fused_net import why_no_fused_net
from muster.nets.q_network import as_tensors
from muster.nets.tile import FUSED

pytestmark = pytest.mark.skipif(not FUSED, reason="numba cannot compile here")

SHAPES = [  # obs, actions, hidden, batch
    (1, 1, (), 1),
    (4, 2, (), 5),
    (4, 2, (64, 64), 64),
    (4, 2, (64, 64), 1),
    (3, 5, (17,), 13),
    (7, 19, (5, 300, 9), 33),
    (8, 4, (128, 128), 64),
    (4, 2, (256, 256), 64),
    (30, 6, (130, 70, 33), 100),
    (2, 3, (1, 1, 1, 1), 2),
    (376, 17, (400, 300), 70),
    (4, 2, (512, 512, 512), 20),
    (5, 3, (600, 33), 65),
]


def _reference(module, obs, dq):
    """q and the flat gradient of sum(dq * q), by autograd in float64."""
    double = copy.deepcopy(module).double()
    x = torch.from_numpy(obs)
    if x.is_floating_point():
        # `Flatten` makes float32, which is exact here: the observations are float32 already.
        q = nn.Sequential(*list(double)[1:])(x.double().reshape(len(x), -1))
    else:
        q = nn.Sequential(*list(double)[1:])(double[0](x).double())
    q.backward(torch.from_numpy(dq).double())
    gradient = torch.cat([p.grad.flatten() for p in double.parameters()])
    return q.detach().numpy(), gradient.numpy()


def _assert_same(net, flat, obs, dq):
    q, gradient = _reference(flat.module, obs, dq)
    got = np.full_like(flat.vector, np.nan)
    np.testing.assert_allclose(net.forward(obs), q, rtol=1e-5, atol=1e-5)
    net.backward(dq, got)
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max())


@pytest.mark.parametrize(
    ("n_obs", "actions", "hidden", "batch", "dueling"),
    [(*shape, False) for shape in SHAPES] + [(*shape, True) for shape in SHAPES if shape[2]],
)
@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
def test_forward_and_gradient_are_those_of_autograd(
    rng, n_obs, actions, hidden, batch, activation, dueling
):
    space = spaces.Box(-1, 1, (n_obs,))
    module = build_q_network(space, actions, hidden, dueling, activation=activation, seed=1)
    flat = FlatParameters(module)
    net = FusedNet(flat, [module])
    for _ in range(2):  # the second time with arrays that were used
        obs = rng.normal(size=(batch, n_obs)).astype(np.float32)
        dq = rng.normal(size=(batch, actions)).astype(np.float32)
        _assert_same(net, flat, obs, dq)


@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("releases_lock", [False, True])
def test_several_networks_side_by_side_read_two_arrays(rng, activation, releases_lock):
    nets = [MLP(5, (33, 20), 3, activation, layer_norm=True) for _ in range(3)]
    group = nn.ModuleList(nets)
    flat = FlatParameters(group)
    net = FusedNet(flat, nets, beside=2, releases_lock=releases_lock)
    obs, beside = (rng.normal(size=(150, n)).astype(np.float32) for n in (3, 2))
    d = rng.normal(size=(150, 9)).astype(np.float32)
    x = torch.from_numpy(np.concatenate([obs, beside], axis=1)).double().requires_grad_()
    twin = copy.deepcopy(group).double()
    wanted = torch.cat([each(x) for each in twin], dim=1)
    wanted.backward(torch.from_numpy(d).double())
    np.testing.assert_allclose(net.predict(obs, beside), wanted.detach(), rtol=1e-5, atol=1e-5)
    net.forward(obs, beside)
    grad = np.full_like(flat.vector, np.nan)
    net.backward(d, grad)
    by_weights = torch.cat([p.grad.flatten() for p in twin.parameters()]).numpy()
    close = {"rtol": 1e-4, "atol": 1e-5 * np.abs(by_weights).max()}
    np.testing.assert_allclose(grad, by_weights, **close)
    np.testing.assert_allclose(net.input_gradient(d), x.grad[:, 3:], rtol=1e-4, atol=1e-5)
    again = np.full_like(flat.vector, np.nan)
    net.backward(d, again)  # a gradient by inputs changes nothing that one by weights needs
    assert np.array_equal(again, grad)


def test_the_bits_of_a_row_do_not_depend_on_its_neighbours(rng):
    module = build_q_network(spaces.Box(-1, 1, (7,)), 3, (256, 65), activation="gelu")
    net = FusedNet(FlatParameters(module), [module])
    obs = rng.normal(size=(200, 7)).astype(np.float32)
    q = net.predict(obs)
    for first, last in ((0, 1), (3, 20), (63, 130), (199, 200)):
        assert np.array_equal(net.predict(obs[first:last]), q[first:last])


def test_layers_without_activation_between_them_are_layers_too(rng):
    module = nn.Sequential(
        Flatten((3,)), nn.Linear(3, 4), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)
    )
    flat = FlatParameters(module)
    obs, dq = (rng.normal(size=(6, n)).astype(np.float32) for n in (3, 2))
    _assert_same(FusedNet(flat, [module]), flat, obs, dq)


@pytest.mark.parametrize("space", [spaces.Discrete(6, start=1), spaces.MultiDiscrete([3, 4])])
def test_one_hot_observations_are_compiled_too(rng, space):
    module = build_q_network(space, 3, (8,))
    flat = FlatParameters(module)
    net = FusedNet(flat, [module])
    space.seed(0)
    for _ in range(2):  # the second must not see the ones of the first
        obs = np.stack([space.sample() for _ in range(9)])
        _assert_same(net, flat, obs, rng.normal(size=(9, 3)).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, np.bool_])
def test_observations_of_any_type_and_shape_are_read(dtype):
    module = build_q_network(spaces.Box(0, 1, (2, 3)), 2, (8,))
    obs = (np.arange(24).reshape(4, 2, 3) % 2).astype(dtype)
    with torch.no_grad():
        expected = module(as_tensors(obs)).numpy()
    np.testing.assert_allclose(
        FusedNet(FlatParameters(module), [module]).forward(obs), expected, atol=1e-6
    )


def test_the_compiled_network_is_never_out_of_date():
    torch.manual_seed(0)
    module = MLP(4, (8,), 2)
    flat = FlatParameters(module)
    net = FusedNet(flat, [module])
    obs = np.ones((3, 4), np.float32)
    net.forward(obs)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
        expected = module(torch.from_numpy(obs)).numpy()
    # An output near 0 is the difference of larger numbers.
    np.testing.assert_allclose(net.forward(obs), expected, rtol=1e-5, atol=1e-6)


def test_what_was_returned_is_not_written_again():
    module = MLP(4, (8,), 2)
    net = FusedNet(FlatParameters(module), [module])
    first = net.forward(np.ones((3, 4), np.float32))
    kept = first.copy()
    net.forward(np.zeros((3, 4), np.float32))
    assert np.array_equal(first, kept)


def test_a_second_gradient_vector_gets_the_gradient_too(rng):
    module = build_q_network(spaces.Box(-1, 1, (4,)), 2, (8,), dueling=True)
    flat = FlatParameters(module)
    net = FusedNet(flat, [module])
    obs, dq = (rng.normal(size=(3, n)).astype(np.float32) for n in (4, 2))
    net.forward(obs)
    one, other = np.zeros_like(flat.vector), np.zeros_like(flat.vector)
    net.backward(dq, one)
    net.backward(dq, other)
    assert one.any()
    assert np.array_equal(one, other)


def test_many_batch_sizes_in_turn_do_no_harm(rng):
    module = build_q_network(spaces.Box(-1, 1, (4,)), 2, (8,))
    flat = FlatParameters(module)
    net = FusedNet(flat, [module])
    for batch in [*range(1, 13), 1, 5]:
        obs, dq = (rng.normal(size=(batch, n)).astype(np.float32) for n in (4, 2))
        _assert_same(net, flat, obs, dq)


def test_nan_comes_through():
    module = MLP(2, (8, 8), 2)
    net = FusedNet(FlatParameters(module), [module])
    q = net.forward(np.array([[0, np.nan], [1, 1]], np.float32))
    assert np.isnan(q[0]).all()
    assert np.isfinite(q[1]).all()


def test_threads_do_not_disturb_each_other(rng):
    module = MLP(4, (64, 64), 2)
    net = FusedNet(FlatParameters(module), [module])
    inputs = [rng.normal(size=(8, 4)).astype(np.float32) for _ in range(3)]
    expected = [net.forward(obs) for obs in inputs]
    wrong = []

    def run(obs, right):
        wrong.extend(1 for _ in range(300) if not np.array_equal(net.forward(obs), right))

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(inputs, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_does_not_fit_is_refused():
    module = MLP(4, (8,), 2)
    flat = FlatParameters(module)
    for net in (FusedNet(flat, [module]), TorchNet(module, flat)):
        with pytest.raises(OptionError, match=r"backward got .* of shape \(3, 2\)"):
            net.backward(np.zeros((3, 2), np.float32), np.zeros_like(flat.vector))
        net.forward(np.ones((5, 4), np.float32))
        with pytest.raises(OptionError, match=r"backward got .* of shape \(3, 2\)"):
            net.backward(np.zeros((3, 2), np.float32), np.zeros_like(flat.vector))
    with pytest.raises(OptionError, match=r"observations of shape \(4, 1\) do not fit"):
        FusedNet(flat, [module]).forward(np.ones(4, np.float32))


class OwnForward(nn.Sequential):
    def forward(self, obs):
        return super().forward(obs) * 2


class OwnLinear(nn.Linear):
    def forward(self, obs):
        return super().forward(obs) * 2


def _hooked():
    module = MLP(4, (8,), 2)
    module[0].register_forward_hook(lambda module, args, out: out * 2)
    return module


def _backward_hooked():
    module = MLP(4, (8,), 2)
    module[0].register_full_backward_hook(lambda module, gin, gout: None)
    return module


def _frozen():
    module = MLP(4, (8,), 2)
    module[0].bias.requires_grad_(False)
    return module


def _tied():
    module = MLP(4, (4, 4), 2)
    module[2].weight = module[0].weight
    return module


def _repeated():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, layer, nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: OwnForward(nn.Linear(4, 2)), "OwnForward has no compiled equivalent"),
        (lambda: nn.Sequential(OwnLinear(4, 2)), "OwnLinear has no compiled equivalent"),
        (
            lambda: nn.Sequential(nn.Linear(4, 2), nn.Dropout()),
            "Dropout has no compiled equivalent",
        ),
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.ReLU()), "does not end with a Linear layer"),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), "does not follow a Linear layer"),
        (lambda: nn.Sequential(), "does not end with a Linear layer"),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 2)),
            "Tanh does not follow a Linear",
        ),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), DuelingHead(4, 2), nn.Linear(2, 2)),
            "DuelingHead",
        ),
        (lambda: nn.Sequential(nn.Linear(4, 4), Flatten((4,)), nn.Linear(4, 2)), "Flatten"),
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(4, 2)), "precedes one of 4 inputs"),
        (lambda: nn.Sequential(nn.Linear(4, 8), DuelingHead(6, 2)), "precedes one of 6 inputs"),
        (lambda: nn.Linear(4, 2, bias=False), "has no bias"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), "no compiled equivalent"),
        (_hooked, "Linear has hooks"),
        (_backward_hooked, "Linear has hooks"),
        (_frozen, "frozen"),
        (_tied, "shared"),
        (_repeated, "shared"),
    ],
)
def test_other_modules_go_through_torch_and_the_reason_is_told(make, reason):
    module = make()
    flat = FlatParameters(module)
    assert reason in why_no_fused_net(module, flat)
    assert isinstance(make_net(module, flat), TorchNet)


def test_plain_chains_are_compiled():
    for module in (nn.Linear(4, 2), MLP(4, (8,), 2), nn.Sequential(MLP(4, (8,)), nn.Linear(8, 2))):
        assert isinstance(make_net(module, FlatParameters(module)), FusedNet)
