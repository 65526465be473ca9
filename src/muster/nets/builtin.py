"""The Q-networks that muster has names for: `mlp`, `nature_cnn`, `impala_cnn`, `resnet20`.

They are built like your own model: with torch's global generator seeded for it.
"""

from collections import OrderedDict
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from muster.nets.encoders import make_encoder
from muster.nets.errors import ModelError
from muster.nets.mlp import MLP
from muster.nets.q_network import build_q_network
from muster.nets.residual import check_image, residual_encoder


def mlp(obs_space: gym.Space[Any], n_actions: int) -> nn.Module:
    """Return two layers of 64 after the encoder of the observations."""
    return build_q_network(obs_space, n_actions, (64, 64), seed=_drawn_seed())


def nature_cnn(obs_space: gym.Space[Any], n_actions: int) -> nn.Module:
    """Return the network of Mnih et al. 2015: three convolutions and a layer of 512."""
    check_image("nature_cnn", obs_space, make_encoder(obs_space))
    return build_q_network(obs_space, n_actions, (512,), seed=_drawn_seed())


def residual(obs_space: gym.Space[Any], n_actions: int, *, model: str) -> nn.Module:
    """Return a residual network and a layer of 256.

    `impala_cnn` is that of Espeholt et al. 2018, of 15 convolutions; `resnet20` and others are
    those of He et al. 2015, of 6n + 2 layers.
    """
    encoder = residual_encoder(model, obs_space)
    features = int(encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
    return nn.Sequential(OrderedDict(encoder=encoder, trunk=MLP(features, (256,), n_actions)))


def gru(obs_space: gym.Space[Any], n_actions: int) -> nn.Module:
    """Raise ModelError: this is not a Q-network."""
    raise _no_q_network("gru")


def lstm(obs_space: gym.Space[Any], n_actions: int) -> nn.Module:
    """Raise ModelError: this is not a Q-network."""
    raise _no_q_network("lstm")


def _no_q_network(name: str) -> ModelError:
    return ModelError(
        f"the model {name!r} is not a Q-network",
        "it is recurrent, and this Q-learner learns from single steps, drawn in any order",
        "--model mlp, or muster train ppo",
    )


def _drawn_seed() -> int:
    return int(torch.randint(2**62, ()))
