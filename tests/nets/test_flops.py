"""Counted arithmetic of networks is what one computes by hand."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from muster.algos.ppo import PPO, PPOConfig
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy
from muster.nets.flops import Product, count_products

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
IMAGE = gym.spaces.Box(-1, 1, (4, 9, 9), np.float32)


def flops(module, space):
    return sum(product.flops for product in count_products(module, space))


def test_an_mlp_is_its_layers():
    module = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    assert count_products(module, VECTOR) == [Product(1, 4, 64), Product(1, 64, 2)]
    assert flops(module, VECTOR) == 2 * (4 * 64 + 64 * 2)


def test_a_cnn_multiplies_for_every_pixel_of_the_result_and_a_group_has_its_own_channels():
    module = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2),  # 9 x 9 -> 4 x 4
        nn.ReLU(),
        nn.Conv2d(8, 6, (2, 1), groups=2),  # 4 x 4 -> 3 x 4
        nn.Flatten(),
        nn.Linear(6 * 3 * 4, 5),
    )
    by_hand = 16 * (4 * 3 * 3) * 8 + 2 * 12 * (4 * 2 * 1) * 3 + 72 * 5
    assert flops(module, IMAGE) == 2 * by_hand


def test_the_standard_policy_is_two_stacks_of_layers():
    agent = PPO(PPOConfig(hidden=(64, 64)), VECTOR, gym.spaces.Discrete(2))
    assert flops(agent.model, VECTOR) == 2 * (2 * (4 * 64 + 64 * 64) + 64 * 2 + 64 * 1)


def test_a_layer_that_is_used_twice_counts_twice():
    layer = nn.Linear(4, 4)
    assert flops(nn.Sequential(layer, layer), VECTOR) == 2 * flops(layer, VECTOR)


@pytest.mark.parametrize("training", [True, False])
def test_counting_leaves_a_module_as_it_was(training):
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    count_products(module, VECTOR)
    assert module.training is training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(layer._forward_hooks for layer in module.modules())


@pytest.mark.parametrize(("model", "gates"), [("lstm", 4), ("gru", 3)])
def test_a_cell_is_a_product_of_its_inputs_and_one_of_its_state(model, gates):
    module = build_policy(VECTOR, ActionHead.of(gym.spaces.Discrete(2)), (32, 24), model=model)
    cell = gates * 24 * (32 + 24)
    assert flops(module, VECTOR) == 2 * (4 * 32 + cell + 24 * 2 + 24 * 1)
