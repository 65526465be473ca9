"""The networks that muster has a name for: `--model mlp`, `--model nature_cnn`.

They are built as a model of the user's own is: with torch's global generator seeded for it.
"""

from typing import Any

import gymnasium as gym
import torch
from torch import nn

from muster.nets.cnn import NatureCNN
from muster.nets.encoders import make_encoder
from muster.nets.errors import ModelError
from muster.nets.q_network import build_q_network


def mlp(obs_space: gym.Space[Any], n_actions: int) -> nn.Module:
    """Return two layers of 64 behind the encoder that observations need."""
    return build_q_network(obs_space, n_actions, (64, 64), seed=_drawn_seed())


def nature_cnn(obs_space: gym.Space[Any], n_actions: int) -> nn.Module:
    """Return the network of Mnih et al. 2015: three convolutions and a layer of 512."""
    if not isinstance(make_encoder(obs_space), NatureCNN):
        raise ModelError(
            f"the model 'nature_cnn' cannot read {obs_space}",
            "it reads images: a Box of uint8 with height and width",
            "--model mlp",
        )
    return build_q_network(obs_space, n_actions, (512,), seed=_drawn_seed())


def _drawn_seed() -> int:
    return int(torch.randint(2**62, ()))
