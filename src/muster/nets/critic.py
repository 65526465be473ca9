"""Networks that value an observation together with an action, and ways to run them.

obs, action -> CriticGroup -> values [B, members * outputs] -> backward: gradient w.r.t. the weights
                                                            -> input_gradient: w.r.t. the actions
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from muster.nets.dropout import SeededDropout
from muster.nets.encoders import Flatten, make_encoder
from muster.nets.flat import FlatParameters
from muster.nets.fused_net import FusedNet, why_no_fused_net
from muster.nets.mlp import linear, make_activation
from muster.nets.q_network import build_q_network
from muster.nets.registry import Factory
from muster.nets.torch_net import TorchNet

_FEATURES = 256
"""Features that your own model computes from an observation for a critic."""
_BATCH_NORM_MOMENTUM = 0.01


class Critic(nn.Module):
    """The values of actions in the range -1 to 1.

    Args:
        obs_space: Space of one observation.
        action_size: Numbers in one action.
        hidden: Width of each layer after the encoder.
        outputs: Values of each pair: 1, or the number of quantiles.
        activation: "relu", "tanh", "gelu" or "silu", after each hidden layer.
        layer_norm: Normalise the output of each hidden layer, row by row, before the activation.
        dropout: Probability of dropping a hidden output in training.
        batch_norm: Normalise the input of each layer, over the rows of a batch.
        model: Your own network to read observations, in place of the encoder.
        seed: Seed of the initial weights, and of dropout.
    """

    def __init__(
        self,
        obs_space: gym.Space[Any],
        action_size: int,
        hidden: Sequence[int] = (256, 256),
        outputs: int = 1,
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        dropout: float = 0.0,
        batch_norm: bool = False,
        model: str | Factory | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.action_size = action_size
        if model is None:
            self.encoder = make_encoder(obs_space, generator)
            features = int(self.encoder.out_features)  # type: ignore[arg-type]
        else:
            features = _FEATURES
            own = build_q_network(obs_space, features, model=model, seed=seed)
            self.encoder = nn.Sequential(own, make_activation(activation))
        layers: list[nn.Module] = []
        width = features + action_size
        for out in hidden:
            if batch_norm:
                layers.append(nn.BatchNorm1d(width, momentum=_BATCH_NORM_MOMENTUM))
            layers.append(linear(width, out, generator))
            if dropout:
                layers.append(SeededDropout(dropout, generator))
            if layer_norm:
                layers.append(nn.LayerNorm(out))
            layers.append(make_activation(activation))
            width = out
        if batch_norm:
            layers.append(nn.BatchNorm1d(width, momentum=_BATCH_NORM_MOMENTUM))
        head = linear(width, outputs, generator)
        self.layers = nn.Sequential(OrderedDict(trunk=nn.Sequential(*layers), head=head))

    def forward(self, pair: tuple[Any, Tensor]) -> Tensor:
        """Return values [B, outputs] of observations and actions [B, action_size]."""
        obs, action = pair
        values: Tensor = self.layers(torch.cat([self.encoder(obs), action], dim=1))
        return values


class CriticGroup(nn.Module):
    """Several critics that read the same input; their values are concatenated.

    Args:
        members: Critics of the same observations and actions.
    """

    def __init__(self, members: Sequence[Critic]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, pair: tuple[Any, Tensor]) -> Tensor:
        """Return values [B, members * outputs] of observations and actions."""
        return torch.cat([member(pair) for member in self.members], dim=1)


def make_critic_net(group: CriticGroup, flat: FlatParameters) -> FusedNet | TorchNet:
    """Return the fastest way to run critics: compiled if possible, otherwise by torch.

    Args:
        group: The networks.
        flat: Their parameters.
    """
    members = [member for member in group.members if isinstance(member, Critic)]
    encoder = members[0].encoder
    nets = [member.layers for member in members]
    why: str | None = f"observations go through {type(encoder).__name__}"
    if type(encoder) is Flatten:
        why = why_no_fused_net(group, flat, nets)
    if why is not None:
        return TorchNet(group, flat, why)
    return FusedNet(flat, nets, members[0].action_size, releases_lock=True)
