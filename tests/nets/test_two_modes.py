"""A model that is another function in training and in evaluation is refused, with its layer."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy
from muster.nets.errors import ModelError
from muster.nets.q_network import build_q_network

OBS = gym.spaces.Box(-1, 1, (6,), np.float32)
ACTIONS = gym.spaces.Discrete(3)


class Functional(nn.Module):
    """Noise that no layer shows."""

    def forward(self, x):
        return nn.functional.dropout(x + 1.0, 0.5, self.training)


class Gated(nn.Module):
    def forward(self, x):
        return x * 2 if self.training else x + 1.0


LAYERS = {
    "Dropout": lambda: nn.Dropout(0.5),
    "AlphaDropout": lambda: nn.AlphaDropout(0.1),
    "BatchNorm1d": lambda: nn.BatchNorm1d(32),
    "LazyBatchNorm1d": lambda: nn.LazyBatchNorm1d(),
    "RReLU": lambda: nn.RReLU(),
    "functional": Functional,
    "gated": Gated,
}
FINE = {
    "LayerNorm": lambda: nn.LayerNorm(32),
    "GroupNorm": lambda: nn.GroupNorm(4, 32),
    "no dropout": lambda: nn.Dropout(0.0),
    "GELU": nn.GELU,
}


def body(layer):
    return nn.Sequential(nn.Linear(6, 32), layer())


def q_network(layer):
    return build_q_network(
        OBS, 3, model=lambda obs, n: nn.Sequential(body(layer), nn.Linear(32, n)), seed=1
    )


def policy(layer, normalize_obs=False):
    class Pair(nn.Module):
        def __init__(self, obs, outputs):
            super().__init__()
            self.body, self.out, self.value = body(layer), nn.Linear(32, outputs), nn.Linear(32, 1)

        def forward(self, obs):
            hidden = self.body(obs)
            return self.out(hidden), self.value(hidden)

    head = ActionHead.of(ACTIONS)
    return build_policy(OBS, head, model=Pair, normalize_obs=normalize_obs, seed=1)


@pytest.mark.parametrize("build", [q_network, policy, lambda each: policy(each, True)])
@pytest.mark.parametrize("layer", LAYERS)
def test_it_is_refused_with_the_reason(build, layer):
    with pytest.raises(ModelError, match="in training and in evaluation") as caught:
        build(LAYERS[layer])
    shown = "forward()" if layer in ("functional", "gated") else layer.removeprefix("Lazy")
    assert shown in str(caught.value)


@pytest.mark.parametrize("build", [q_network, policy])
@pytest.mark.parametrize("layer", FINE)
def test_others_are_built_and_draw_nothing(build, layer):
    state = torch.random.get_rng_state()
    assert isinstance(build(FINE[layer]), nn.Module)
    assert torch.equal(torch.random.get_rng_state(), state)
