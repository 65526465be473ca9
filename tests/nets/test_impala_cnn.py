"""The residual CNN: sizes, the numbers it makes, where its weights come from."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn import functional

from muster import OptionError
from muster.nets import ModelError, build_q_network
from muster.nets.impala_cnn import ImpalaCNN, ResidualBlock
from muster.nets.residual import residual_encoder


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 9), (10, 10), (15, 40), (64, 64), (84, 84),
                                  (210, 160), (300, 31)])  # fmt: skip
@pytest.mark.parametrize("layout", ["hw", "hwc", "chw"])
def test_images_of_any_size_can_be_read(size, layout):
    shape = {"hw": size, "hwc": (*size, 1), "chw": (1, *size)}[layout]
    cnn = ImpalaCNN(shape)
    features = cnn(torch.zeros((2, *shape), dtype=torch.uint8))
    assert features.shape == (2, cnn.out_features)
    halved = [-(-n // 8) for n in size]
    assert cnn.out_features == 32 * halved[0] * halved[1]


def test_it_has_the_fifteen_convolutions_of_the_paper():
    shapes = [tuple(p.shape) for n, p in ImpalaCNN((84, 84, 4)).named_parameters() if "weight" in n]
    expected = []
    for before, after in ((4, 16), (16, 32), (32, 32)):
        expected += [(after, before, 3, 3), *4 * [(after, after, 3, 3)]]
    assert shapes == expected


def test_both_layouts_of_an_image_are_the_same_image(rng):
    image = rng.integers(0, 256, (2, 20, 24, 3), dtype=np.uint8)
    last, first = (
        ImpalaCNN(shape, torch.Generator().manual_seed(0)) for shape in ((20, 24, 3), (3, 20, 24))
    )
    moved = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    expected = last(torch.from_numpy(image))
    torch.testing.assert_close(first(torch.from_numpy(moved)), expected)


def test_a_block_adds_two_convolutions_to_what_comes_in():
    block = ResidualBlock(4, torch.Generator().manual_seed(0))
    x = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(1))
    conv = functional.conv2d
    step = conv(x.clamp(min=0), block.first.weight, block.first.bias, padding=1).clamp(min=0)
    step = conv(step, block.second.weight, block.second.bias, padding=1)
    torch.testing.assert_close(block(x), x + step)


def test_the_generator_alone_decides_the_weights():
    before = torch.random.get_rng_state()
    made = [ImpalaCNN((8, 8), torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    a, b, other = (torch.cat([p.flatten() for p in cnn.parameters()]) for cnn in made)
    assert torch.equal(a, b)
    assert not torch.equal(a, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_features_of_a_new_network_neither_vanish_nor_explode(rng):
    cnn = ImpalaCNN((64, 64, 3), torch.Generator().manual_seed(0))
    features = cnn(torch.from_numpy(rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)))
    assert 0.01 < features.std() < 10


def test_each_image_of_a_dict_gets_one():
    image = spaces.Box(0, 255, (9, 9, 3), np.uint8)
    space = spaces.Dict(a=image, b=spaces.Dict(c=image), d=spaces.Discrete(3))
    encoder = residual_encoder("impala_cnn", space)
    assert sum(isinstance(part, ImpalaCNN) for part in encoder.modules()) == 2
    assert encoder.out_features == 2 * 32 * 4 + 3


def test_a_q_learner_can_ask_for_it_by_name():
    image = spaces.Box(0, 255, (20, 20, 3), np.uint8)
    before = torch.random.get_rng_state()
    module = build_q_network(image, 4, model="impala_cnn", seed=3)
    assert isinstance(module.encoder, ImpalaCNN)
    assert module(torch.zeros((5, 20, 20, 3), dtype=torch.uint8)).shape == (5, 4)
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ModelError, match="'impala_cnn' cannot read Box"):
        build_q_network(spaces.Box(-1, 1, (4,)), 4, model="impala_cnn")


def test_a_q_learner_that_asks_for_a_memory_is_told_why_not():
    with pytest.raises(ModelError, match=r"'lstm' is not a Q-network\n  why: .*\n  try: .*ppo"):
        build_q_network(spaces.Box(-1, 1, (4,)), 4, model="lstm")
    with pytest.raises(
        OptionError, match=r"there are gru, impala_cnn, lstm, mlp, nature_cnn, resnet20, "
    ):
        build_q_network(spaces.Box(-1, 1, (4,)), 4, model="impala")
