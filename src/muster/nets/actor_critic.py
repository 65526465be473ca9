"""The standard policy network: from any observation to outputs for actions and a value.

obs -> [ObsNorm] -> encoder -> [trunk] -+-> policy -> outputs [B, K]
                                        +-> value  -> [B]     (or the best of the outputs)

Weights are initialised orthogonally, as in most implementations of PPO (Engstrom et al. 2020
measured that it matters): gain sqrt(2) before an activation, 0.01 for the actions, 1 for the value.
"""

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from muster.nets.action_head import ActionHead
from muster.nets.encoders import make_encoder
from muster.nets.masking import mask_outputs
from muster.nets.mlp import MLP
from muster.nets.normalizer import ObsNorm


class ActorCritic(nn.Module):
    """A network that returns outputs for actions and a value.

    Args:
        obs_space: Space of one observation.
        head: How the outputs are interpreted.
        hidden: Width of each layer after the encoder.
        shared: Share the hidden layers between both heads; otherwise each has its own. An encoder
            with weights (a CNN) is always shared.
        activation: "relu", "tanh", "gelu" or "silu", after each hidden layer.
        normalize_obs: Put an `ObsNorm` in front.
        log_std: Initial log_std of a Gaussian.
        generator: Draws the initial weights. None: torch's global generator.
        layer_norm: Put a LayerNorm before each activation.
        critic: Whether the value has its own head. Otherwise the value is the best output, as in a
            Q-network.
    """

    def __init__(
        self,
        obs_space: gym.Space[Any],
        head: ActionHead,
        hidden: Sequence[int] = (64, 64),
        shared: bool = False,
        activation: str = "tanh",
        normalize_obs: bool = False,
        log_std: float = 0.0,
        generator: torch.Generator | None = None,
        layer_norm: bool = False,
        critic: bool = True,
    ) -> None:
        super().__init__()
        self.normalizer = ObsNorm(obs_space) if normalize_obs else None
        self.encoder = make_encoder(obs_space, generator)
        width = int(self.encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
        means = head.width if head.gaussian else head.outputs
        own = () if shared else tuple(hidden)
        self.trunk = MLP(width, hidden if shared else (), None, activation, generator, layer_norm)
        last = hidden[-1] if shared and hidden else width
        self.policy = MLP(last, own, means, activation, generator, layer_norm)
        self.value = MLP(last, own, 1, activation, generator, layer_norm) if critic else None
        self.log_std = nn.Parameter(torch.full((means,), log_std)) if head.gaussian else None
        self._draw(generator)

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return outputs [B, K] and values [B] of observations [B, ...]."""
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        features = self.trunk(self.encoder(obs))
        outputs: Tensor = self.policy(features)
        if self.log_std is not None:
            outputs = torch.cat([outputs, self.log_std.expand_as(outputs)], dim=1)
        outputs = mask_outputs(outputs, obs)
        value = outputs.amax(1) if self.value is None else self.value(features).squeeze(1)
        return outputs, value

    def _draw(self, generator: torch.Generator | None) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, math.sqrt(2), generator=generator)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # every layer here has one
        nn.init.orthogonal_(self.policy[-1].weight, 0.01, generator=generator)  # type: ignore[arg-type]
        if self.value is not None:
            nn.init.orthogonal_(self.value[-1].weight, 1.0, generator=generator)  # type: ignore[arg-type]
