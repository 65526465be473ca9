"""From an observation space to a vector of features: the first part of every network.

Box, MultiBinary            -> Flatten
Box of uint8 [H, W(, C)]    -> NatureCNN
Discrete, MultiDiscrete     -> OneHot
Dict                        -> DictEncoder: the features of its parts, one after another, except an
                               action mask, which is not a feature
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from muster.envs.masks import parts_to_read
from muster.nets.cnn import NatureCNN
from muster.nets.errors import ModelError


class Flatten(nn.Module):
    """Observations of any shape as float32 vectors, [B, out_features]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_features = math.prod(shape)

    def forward(self, obs: Tensor) -> Tensor:
        """Return [B, out_features]."""
        return obs.reshape(obs.shape[0], self.out_features).float()


class OneHot(nn.Module):
    """Integers as one-hot float32 vectors, one after another, [B, out_features].

    Args:
        sizes: Number of values of each integer.
        starts: Lowest value of each integer.
    """

    offsets: Tensor

    def __init__(self, sizes: list[int], starts: list[int]) -> None:
        super().__init__()
        self.out_features = sum(sizes)
        places = np.cumsum([0, *sizes[:-1]]) - np.asarray(starts)
        # Not persistent: the space determines it, so it is not learnt.
        self.register_buffer("offsets", torch.from_numpy(places), persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """Return [B, out_features]."""
        at = obs.reshape(obs.shape[0], -1).long() + self.offsets
        zeros = torch.zeros(at.shape[0], self.out_features, device=at.device)
        return zeros.scatter_(1, at, 1.0)


class DictEncoder(nn.Module):
    """A Dict observation as the features of its parts, in the order of the space's keys.

    Args:
        parts: An encoder for each key.
    """

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        # A ModuleDict rejects some keys (dots, names of its own methods); a list accepts all.
        self.keys = list(parts)
        """The key that each part reads."""
        self.parts = nn.ModuleList(parts.values())
        self.out_features = sum(_width(part) for part in self.parts)

    def forward(self, obs: Mapping[str, Any]) -> Tensor:
        """Return [B, out_features]."""
        pairs = zip(self.keys, self.parts, strict=True)
        return torch.cat([part(obs[key]) for key, part in pairs], dim=1)


def make_encoder(space: gym.Space[Any], generator: torch.Generator | None = None) -> nn.Module:
    """Return a module from observations of `space` to features [B, encoder.out_features]."""
    if isinstance(space, gym.spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            return NatureCNN(space.shape, generator)
        if space.dtype != np.uint8 or len(space.shape) < 2:
            return Flatten(space.shape)
    elif isinstance(space, gym.spaces.MultiBinary):
        return Flatten(space.shape)
    elif isinstance(space, gym.spaces.Discrete):
        return OneHot([int(space.n)], [int(space.start)])
    elif isinstance(space, gym.spaces.MultiDiscrete):
        return OneHot(space.nvec.flatten().tolist(), space.start.flatten().tolist())
    elif isinstance(space, gym.spaces.Dict):
        parts = parts_to_read(space).items()
        return DictEncoder({key: make_encoder(part, generator) for key, part in parts})
    raise ModelError(
        f"there is no standard network for observations of {space}",
        "muster reads Box (images as uint8 [H, W, C] or [C, H, W]), Discrete, MultiDiscrete, "
        "MultiBinary and Dict",
        "wrap the environment, or use your own model: model=MyNetwork",
    )


def _width(encoder: nn.Module) -> int:
    return int(encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
