"""What build_q_network makes of each kind of space, and where its weights come from."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from muster import OptionError
from muster.nets import (
    MLP,
    DuelingHead,
    ModelError,
    NatureCNN,
    build_q_network,
    make_encoder,
    register_model,
)
from muster.nets.q_network import as_tensors

VECTOR = spaces.Box(-1, 1, (4,))


def _weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize(
    "space",
    [
        VECTOR,
        spaces.Box(-1, 1, (3, 5), np.float64),
        spaces.Box(-1, 1, ()),
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        spaces.Box(0, 255, (4, 84, 84), np.uint8),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([2, 3], start=[0, 1]),
        spaces.MultiBinary(6),
        spaces.Dict(a=VECTOR, b=spaces.Discrete(3), c=spaces.Dict(d=spaces.Box(0, 1, (2, 2)))),
    ],
    ids=str,
)
@pytest.mark.parametrize("dueling", [False, True])
def test_every_kind_of_observation_gives_one_value_per_action(space, dueling):
    model = build_q_network(space, 3, hidden=(16,), dueling=dueling)
    space.seed(0)
    samples = [space.sample() for _ in range(5)]
    obs = _stack(samples)
    q = model(as_tensors(obs))
    assert q.shape == (5, 3)
    assert q.dtype == torch.float32
    assert torch.isfinite(q).all()


def _stack(samples):
    if isinstance(samples[0], dict):
        return {key: _stack([sample[key] for sample in samples]) for key in samples[0]}
    return np.stack(samples)


def test_numbers_from_a_finite_set_become_one_hot_vectors():
    encoder = make_encoder(spaces.MultiDiscrete([2, 3], start=[0, 5]))
    got = encoder(torch.tensor([[0, 5], [1, 7]]))
    assert got.tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]]
    assert make_encoder(spaces.Discrete(3, start=2))(torch.tensor([3])).tolist() == [[0, 1, 0]]


def test_the_parts_of_a_dict_stand_one_after_the_other():
    encoder = make_encoder(spaces.Dict({"a.b": spaces.Discrete(2), "type": VECTOR}))
    got = encoder({"type": torch.full((1, 4), 7.0), "a.b": torch.tensor([1])})
    assert got.tolist() == [[0, 1, 7, 7, 7, 7]]
    assert encoder.out_features == 6


@pytest.mark.parametrize("size", [(1, 1), (3, 9), (10, 10), (15, 40), (16, 16), (35, 36), (36, 36),
                                  (84, 84), (96, 64), (210, 160)])  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
def test_images_of_any_size_can_be_read(size, channels_last):
    shape = (*size, 1) if channels_last else (1, *size)
    cnn = NatureCNN(shape)
    assert cnn(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, cnn.out_features)


def test_an_atari_image_goes_through_the_network_of_the_paper():
    cnn = NatureCNN((84, 84, 4))
    shapes = [tuple(p.shape) for p in cnn.parameters() if p.dim() == 4]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert cnn.out_features == 3136


def test_small_images_are_not_lost_in_large_strides():
    features = {size: NatureCNN((size, size, 4)).out_features for size in (10, 15, 16, 32, 36)}
    assert features == {10: 64 * 4**2, 15: 64 * 9**2, 16: 64 * 3**2, 32: 64 * 11**2, 36: 64 * 1**2}


def test_the_order_of_axes_makes_no_difference(rng):
    image = rng.integers(0, 256, (2, 40, 50, 3), dtype=np.uint8)
    last, first = (
        NatureCNN(s, torch.Generator().manual_seed(1)) for s in [(40, 50, 3), (3, 40, 50)]
    )
    moved = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    torch.testing.assert_close(last(torch.from_numpy(image)), first(torch.from_numpy(moved)))


def test_pixels_are_divided_by_255():
    cnn = NatureCNN((8, 8))
    white = cnn(torch.full((1, 8, 8), 255, dtype=torch.uint8))
    with torch.no_grad():
        ones = cnn.layers(torch.ones(1, 1, 8, 8)).flatten(1)
    torch.testing.assert_close(white, ones)


@pytest.mark.parametrize("space", [spaces.Box(0, 255, (4, 8, 8, 3), np.uint8), spaces.Text(3)])
def test_a_space_without_standard_network_is_refused(space):
    with pytest.raises(ModelError, match="no standard network"):
        build_q_network(space, 2)


def test_the_dueling_head_subtracts_the_mean_advantage():
    head = DuelingHead(2, 3)
    with torch.no_grad():
        head.value.weight[:], head.value.bias[:] = 2.0, 1.0
        head.advantage.weight[:] = torch.tensor([[1.0], [2.0], [6.0]])
        head.advantage.bias[:] = torch.tensor([0.0, 3.0, 0.0])
    # V = 2 * 5 + 1 = 11; A = (1, 2 + 3, 6), mean 4; so Q = 11 + A - 4
    assert head(torch.tensor([[5.0, 1.0]])).tolist() == [[8.0, 12.0, 13.0]]


def test_each_dueling_stream_has_the_last_hidden_layer_to_itself():
    shapes = {
        n: tuple(p.shape) for n, p in build_q_network(VECTOR, 3, (8, 6), True).named_parameters()
    }
    assert shapes["trunk.2.weight"] == (12, 8)
    assert shapes["head.value.weight"] == (1, 6)
    assert shapes["head.advantage.weight"] == (3, 6)
    with pytest.raises(OptionError, match="in_features=3 is not possible"):
        DuelingHead(3, 2)


def test_activation_is_what_was_asked_for():
    model = build_q_network(VECTOR, 2, (8,), activation="tanh")
    assert [type(m) for m in model.trunk] == [nn.Linear, nn.Tanh]
    with pytest.raises(OptionError, match="activation='elu' is not known"):
        MLP(4, (8,), activation="elu")


def _own(obs_space, n_actions):
    return nn.Sequential(nn.Linear(obs_space.shape[0], 8), nn.ReLU(), nn.LazyLinear(n_actions))


@pytest.mark.parametrize("options", [{}, {"dueling": True}, {"model": _own}])
def test_the_seed_alone_decides_the_first_weights(options):
    torch.manual_seed(1)
    first = build_q_network(VECTOR, 2, seed=5, **options)
    torch.manual_seed(2)
    second = build_q_network(VECTOR, 2, seed=5, **options)
    other = build_q_network(VECTOR, 2, seed=6, **options)
    assert torch.equal(_weights(first), _weights(second))
    assert not torch.equal(_weights(first), _weights(other))


@pytest.mark.parametrize(
    ("space", "options"),
    [(VECTOR, {}), (spaces.Box(0, 255, (40, 40), np.uint8), {}), (VECTOR, {"model": _own})],
)
def test_building_leaves_the_global_generators_alone(space, options):
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    build_q_network(space, 2, **options)
    assert torch.equal(before, torch.get_rng_state())
    assert np.random.get_state()[1].tolist() == numpy_before


def test_weights_are_spread_as_torch_spreads_them():
    ours = build_q_network(spaces.Box(-1, 1, (100,)), 2, (200,)).trunk[0]
    theirs = nn.Linear(100, 200)
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.abs().max() <= 0.1
        assert mine.std().item() == pytest.approx(reference.std().item(), rel=0.1)


class OwnNetwork(nn.Module):
    def __init__(self, obs_space, n_actions):
        super().__init__()
        self.layer = nn.Linear(obs_space.shape[0], n_actions)

    def forward(self, obs):
        return self.layer(obs)


def test_a_model_is_a_name_or_a_class_or_a_function():
    register_model("own_network", OwnNetwork)
    for model in ("own_network", OwnNetwork, lambda space, n: OwnNetwork(space, n)):
        assert isinstance(build_q_network(VECTOR, 3, model=model), OwnNetwork)


def test_an_unknown_name_is_answered_with_the_nearest():
    register_model("own_network", OwnNetwork)
    with pytest.raises(OptionError) as caught:
        build_q_network(VECTOR, 2, model="own_netwrok")
    assert "there is no model 'own_netwrok'" in str(caught.value)
    assert 'try: model="own_network"' in str(caught.value)


def test_a_name_means_one_model():
    register_model("taken", OwnNetwork)
    register_model("taken", OwnNetwork)  # a module that is imported twice does no harm
    with pytest.raises(OptionError, match="'taken' is already registered"):
        register_model("taken", _own)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (nn.Linear(4, 2), "a Linear that is already built"),
        (7, "is 7, which cannot be called"),
        (lambda space, n: "net", "returned 'net', which is not a torch module"),
        (lambda space, n: nn.Linear(4, 5), "a tensor of shape (2, 5) for two observations"),
        (lambda space, n: nn.LSTM(4, n), "for two observations, not one of shape (2, 2)"),
    ],
)
def test_what_is_no_q_network_is_refused(model, what):
    with pytest.raises((OptionError, ModelError)) as caught:
        build_q_network(VECTOR, 2, model=model)
    assert what in str(caught.value)


def test_contradictions_are_refused():
    with pytest.raises(OptionError, match="dueling=True and model="):
        build_q_network(VECTOR, 2, dueling=True, model=OwnNetwork)
    with pytest.raises(OptionError, match=r"dueling=True and hidden=\(\)"):
        build_q_network(VECTOR, 2, hidden=(), dueling=True)
    with pytest.raises(OptionError, match="name='' is not possible"):
        register_model("", OwnNetwork)
