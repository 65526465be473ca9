"""What build_policy makes of each kind of space and model, and what it says to a wrong one."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import autograd, loss_and_stats, some_rollout
from torch import nn

from muster import OptionError
from muster.nets import FlatParameters, ModelError, NatureCNN, register_model
from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic
from muster.nets.build_policy import build_policy, make_policy_net
from muster.nets.fused_policy import FusedPolicy, why_not_fused
from muster.nets.fused_recurrent import FusedRecurrent
from muster.nets.impala_cnn import ImpalaCNN
from muster.nets.normalizer import ObsNorm
from muster.nets.policy_net import LossTerms
from muster.nets.q_network import as_tensors
from muster.nets.recurrent import RecurrentActorCritic, RecurrentPolicy
from muster.nets.tile import FUSED
from muster.nets.torch_policy import TorchPolicy

VECTOR = spaces.Box(-1, 1, (4,))
IMAGE = spaces.Box(0, 255, (24, 20, 3), np.uint8)
MIXED = spaces.Dict(
    image=IMAGE,
    grey=spaces.Box(0, 255, (5, 7), np.uint8),
    speed=spaces.Box(-1, 1, (2, 3)),
    kind=spaces.Discrete(4, start=1),
    flags=spaces.MultiBinary(3),
    modes=spaces.MultiDiscrete([2, 3]),
)
DISCRETE = ActionHead.of(spaces.Discrete(3))
BOX = ActionHead.of(spaces.Box(-1, 1, (2,)))


class ResidualNet(nn.Module):
    """A residual CNN as a user may write it: layers as usual, a pair out."""

    def __init__(self, obs_space, n_outputs):
        super().__init__()
        channels = obs_space.shape[-1]
        self.first = nn.Conv2d(channels, 8, 3, 2, padding=1)
        self.block = nn.Sequential(nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.features = nn.LazyLinear(32)
        self.outputs = nn.Linear(32, n_outputs)
        self.value = nn.Linear(32, 1)

    def forward(self, obs):
        x = self.first(obs.permute(0, 3, 1, 2).float() / 255)
        x = torch.relu(x + self.block(x))
        x = torch.tanh(self.features(x.flatten(1)))
        return self.outputs(x), self.value(x)


@pytest.fixture(autouse=True)
def registered():
    register_model("test_residual_policy", ResidualNet)


def _weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def _sample(space, rng, n):
    if isinstance(space, spaces.Dict):
        return {key: _sample(part, rng, n) for key, part in space.items()}
    space.seed(int(rng.integers(1000)))
    return np.stack([space.sample() for _ in range(n)])


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (7, 7), (16, 16), (35, 36), (84, 84), (96, 64),
                                  (210, 160), (256, 256)])  # fmt: skip
@pytest.mark.parametrize("layout", ["hw", "hwc", "chw"])
def test_an_image_of_any_size_builds_a_default_network(size, layout):
    shape = {"hw": size, "hwc": (*size, 3), "chw": (3, *size)}[layout]
    if size < (3, 3) and layout == "hwc":
        shape = (*size, 1)  # the channels are the shorter end
    module = build_policy(spaces.Box(0, 255, shape, np.uint8), DISCRETE, hidden=(16,))
    outputs, value = module(torch.zeros((2, *shape), dtype=torch.uint8))
    assert outputs.shape == (2, 3)
    assert value.shape == (2,)
    assert any(isinstance(part, nn.Conv2d) for part in module.modules())


@pytest.mark.parametrize("model", [None, "mlp", "nature_cnn", "impala_cnn", "lstm", "gru"])
@pytest.mark.parametrize("normalize_obs", [False, True])
@pytest.mark.parametrize("head", [DISCRETE, BOX], ids=["discrete", "box"])
def test_images_vectors_and_categories_go_in_together(rng, model, normalize_obs, head):
    module = build_policy(
        MIXED, head, normalize_obs=normalize_obs, log_std=-1.0, model=model, seed=1
    )
    obs = _sample(MIXED, rng, 5)
    outputs, value = module(as_tensors(obs))
    assert outputs.shape == (5, head.outputs)
    assert value.shape == (5,)
    assert any(isinstance(part, ObsNorm) for part in module.modules()) is normalize_obs
    assert hasattr(module, "normalizer") or not normalize_obs
    if head.gaussian:
        assert torch.equal(outputs[:, 2:], torch.full((5, 2), -1.0))
    flat = FlatParameters(module)
    assert make_policy_net(module, flat, head) is not None


def test_names_give_the_networks_they_say():
    assert isinstance(build_policy(VECTOR, DISCRETE, model="mlp"), ActorCritic)
    nature = build_policy(IMAGE, DISCRETE, model="nature_cnn")
    assert isinstance(nature.encoder, NatureCNN)
    assert nature.trunk[0].out_features == 512
    impala = build_policy(IMAGE, DISCRETE, model="impala_cnn")
    assert isinstance(impala.encoder, ImpalaCNN)
    assert impala.top.trunk[0].out_features == 256
    lstm = build_policy(IMAGE, DISCRETE, (32, 24), model="lstm")
    assert isinstance(lstm, RecurrentActorCritic)
    assert lstm.state_width == 48
    assert build_policy(IMAGE, DISCRETE, (32, 24), model="gru").state_width == 24
    for name in ("nature_cnn", "impala_cnn"):
        with pytest.raises(ModelError, match=f"{name!r} cannot read Box.*\n.*\n.*--model mlp"):
            build_policy(VECTOR, DISCRETE, model=name)
    with pytest.raises(OptionError, match="there is no model 'nature_cn'"):
        build_policy(IMAGE, DISCRETE, model="nature_cn")


@pytest.mark.parametrize(
    "model",
    ["test_residual_policy", ResidualNet, lambda space, n: ResidualNet(space, n)],
    ids=["name", "class", "function"],
)
def test_a_residual_cnn_of_ones_own_acts_and_learns(rng, model):
    module = build_policy(IMAGE, BOX, model=model, seed=2)
    assert isinstance(module, ResidualNet)
    flat = FlatParameters(module)
    net = make_policy_net(module, flat, BOX)
    assert isinstance(net, TorchPolicy)
    obs = _sample(IMAGE, rng, 12)
    rollout = some_rollout(rng, BOX, obs, 12)
    rows = rng.permutation(12)[:8]
    terms = LossTerms(1 / 8, 0.2, 0.0, 0.5, 0.01)
    grad, stats = np.zeros_like(flat.vector), np.zeros(5)
    net.gradient(rollout, rows, terms, grad, stats)
    loss, expected = loss_and_stats(BOX, *module(as_tensors(obs[rows])), rollout, rows, terms)
    np.testing.assert_allclose(grad, autograd(module, loss), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(stats, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [None, "nature_cnn", "impala_cnn", "lstm", "gru", ResidualNet])
def test_the_seed_alone_decides_the_weights(model):
    torch.manual_seed(0)
    first = build_policy(IMAGE, DISCRETE, model=model, seed=5)
    before = torch.random.get_rng_state()
    torch.rand(3)
    moved = torch.random.get_rng_state()
    second = build_policy(IMAGE, DISCRETE, model=model, seed=5)
    assert torch.equal(torch.random.get_rng_state(), moved)
    assert not torch.equal(before, moved)
    assert torch.equal(_weights(first), _weights(second))
    other = build_policy(IMAGE, DISCRETE, model=model, seed=6)
    assert not torch.equal(_weights(first), _weights(other))


def test_a_model_of_ones_own_gets_normalised_observations_in_their_shape():
    seen = []

    class Own(nn.Module):
        def __init__(self, obs_space, n_outputs):
            super().__init__()
            self.layer = nn.Linear(6, n_outputs)

        def forward(self, obs):
            seen.append(obs)
            flat = obs["speed"].flatten(1)
            return self.layer(flat), flat.sum(1)

    space = spaces.Dict(speed=spaces.Box(-1, 1, (2, 3)), kind=spaces.Discrete(4))
    module = build_policy(space, DISCRETE, normalize_obs=True, model=Own)
    module.normalizer.parts[0].merge(4, np.full(6, 3.0), np.full(6, 16.0))
    module({"speed": torch.full((1, 2, 3), 5.0), "kind": torch.tensor([2])})
    torch.testing.assert_close(seen[-1]["speed"], torch.full((1, 2, 3), 1.0))
    assert seen[-1]["kind"].tolist() == [2]


class _Gives(nn.Module):
    def __init__(self, give):
        super().__init__()
        self.give = give

    def forward(self, obs):
        return self.give(len(obs))


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda s, n: 3, "returned 3, which is not a torch module\n  why: .*\n  try: def model"),
        (lambda s, n: _Gives(lambda b: torch.zeros(b, n)), r"shape \(2, 3\).*not a pair"),
        (lambda s, n: _Gives(lambda b: (torch.zeros(b, n),)), "not a pair\n"),
        (
            lambda s, n: _Gives(lambda b: (torch.zeros(b, n + 1), torch.zeros(b))),
            r"outputs .* \(2, 4\) .*\(2, 3\)\n  why: .* 3 logits.*\n  try: .*Linear\(..., 3\)",
        ),
        (
            lambda s, n: _Gives(lambda b: (torch.zeros(b, n).long(), torch.zeros(b))),
            "outputs .*int64, not floats",
        ),
        (
            lambda s, n: _Gives(lambda b: (torch.zeros(b, n), torch.zeros(b, n))),
            r"values .*\(2, 3\).*, not floats of shape \(2,\) or \(2, 1\)\n  why: .*\n  try: ",
        ),
        (lambda s, n: _Gives(lambda b: (torch.zeros(b, n), None)), "values .* are None"),
    ],
)
def test_a_model_that_gives_something_else_is_told_what(model, message):
    with pytest.raises(ModelError, match=message):
        build_policy(VECTOR, DISCRETE, model=model)


def test_a_model_that_was_built_already_is_refused():
    with pytest.raises(OptionError, match="already built"):
        build_policy(VECTOR, DISCRETE, model=nn.Linear(4, 3))


def test_a_small_standard_network_is_compiled_and_a_changed_one_is_not():
    module = build_policy(VECTOR, DISCRETE)
    flat = FlatParameters(module)
    expected = TorchPolicy if why_not_fused(module, flat) else FusedPolicy  # as without numba
    assert isinstance(make_policy_net(module, flat, DISCRETE, channels_last=False), expected)
    module.policy[1] = nn.ELU()
    assert isinstance(make_policy_net(module, flat, DISCRETE), TorchPolicy)


def test_a_network_with_a_memory_gets_its_own_way_to_run():
    module = build_policy(VECTOR, DISCRETE, model="lstm")
    flat = FlatParameters(module)
    kind = FusedRecurrent if FUSED else RecurrentPolicy
    assert isinstance(make_policy_net(module, flat, DISCRETE), kind)


@pytest.mark.parametrize("model", [None, "lstm", "nature_cnn", "impala_cnn"])
def test_a_network_without_a_critic_values_an_observation_by_its_best_output(model):
    space = IMAGE if model in ("nature_cnn", "impala_cnn") else VECTOR
    module = build_policy(space, DISCRETE, model=model, layer_norm=True, critic=False, seed=3)
    assert any(isinstance(part, nn.LayerNorm) for part in module.modules())
    obs = as_tensors(np.stack([space.sample() for _ in range(5)]))
    outputs, value = module(obs)
    assert outputs.shape == (5, 3) and torch.equal(value, outputs.max(1).values)


def test_a_model_of_ones_own_without_a_critic_returns_outputs_alone():
    def plain(obs_space, n):
        return nn.Linear(obs_space.shape[0], n)

    module = build_policy(VECTOR, DISCRETE, model=plain, critic=False)
    outputs, value = module(torch.ones(2, 4))
    assert torch.equal(value, outputs.max(1).values)
    with pytest.raises(ModelError, match=r"for 2 observations\n.*one output per action"):
        build_policy(VECTOR, DISCRETE, model=ResidualPair, critic=False)


def test_what_is_made_of_outputs_is_the_objectives(rng):
    class Halves:
        """Always the first action; the loss is half the sum of all outputs."""

        def draw(self, outputs, noise, action, logp):
            action[:], logp[:] = 0, 0

        def loss(self, outputs, value, rollout, rows, terms, d_outputs, d_value, stats):
            d_outputs[:], d_value[:] = terms, 0
            stats += [outputs.sum()]
            return -1

    for model in (None, "lstm", "gru"):
        module = build_policy(VECTOR, DISCRETE, model=model, seed=1)
        flat = FlatParameters(module)
        net = make_policy_net(module, flat, DISCRETE, Halves())
        rollout = some_rollout(rng, DISCRETE, rng.normal(size=(8, 4)).astype(np.float32), 8)
        state = np.zeros((8, 1, getattr(net, "state_width", 0)), np.float32)
        rollout = rollout._replace(state=state, first=np.ones(8, np.bool_))
        grad, stats = np.zeros_like(flat.vector), np.zeros(1)
        net.gradient(rollout, np.arange(8), 0.5, grad, stats)
        (0.5 * module(torch.from_numpy(rollout.obs))[0].sum()).backward()
        wanted = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
        np.testing.assert_allclose(grad, torch.cat([p.flatten() for p in wanted]), atol=1e-5)


class ResidualPair(nn.Module):
    """A network that returns a pair, as policies do."""

    def __init__(self, obs_space, n_outputs):
        super().__init__()
        self.outputs, self.value = nn.Linear(4, n_outputs), nn.Linear(4, 1)

    def forward(self, obs):
        return self.outputs(obs), self.value(obs)
