"""From the outputs of a network to actions as the environment takes them, in torch.

    categories   outputs [B, K] -> the best of each group -> counted from the space's start
    a Gaussian   outputs [B, 2A] -> means -> within the bounds
    squashed     outputs [B, 2A] -> tanh of the means -> scaled to the bounds

`choose` returns the policy's numbers, which count from 0; `to_env` converts them to actions.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn


class CategoryHead(nn.Module):
    """The best of each group of outputs.

    Args:
        sizes: Number of outputs of each component of an action.
        space: The environment's own space of one action, Discrete or MultiDiscrete.
    """

    start: Tensor

    def __init__(self, sizes: Sequence[int], space: gym.Space[Any]) -> None:
        super().__init__()
        self._sizes = list(sizes)
        self._shape = space.shape or ()
        start = np.asarray(space.start, np.int64).reshape(-1)  # type: ignore[attr-defined]
        self.register_buffer("start", torch.from_numpy(start), persistent=False)
        self._dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype

    def groups(self, outputs: Tensor) -> list[Tensor]:
        """Return the outputs [B, size] of each component of an action."""
        ends = list(accumulate(self._sizes, initial=0))
        return [outputs[:, first:end] for first, end in pairwise(ends)]

    def choose(self, outputs: Tensor) -> Tensor:
        """Return the indices of the best outputs, int64 [B, width], from 0."""
        return torch.stack([group.argmax(dim=1) for group in self.groups(outputs)], dim=1)

    def to_env(self, choice: Tensor) -> Tensor:
        """Return actions [B, ...] in the environment's numbering."""
        moved: Tensor = (choice + self.start).to(self._dtype)
        return moved.reshape(moved.shape[0], *self._shape)


class BoxHead(nn.Module):
    """The means of a Gaussian, as actions within bounds.

    Args:
        space: The space of one action.
        squashed: Whether the means go through tanh and are then scaled to the bounds.
    """

    low: Tensor
    high: Tensor
    middle: Tensor
    half_width: Tensor

    def __init__(self, space: gym.spaces.Box, squashed: bool) -> None:
        super().__init__()
        self._shape = space.shape
        self._squashed = squashed
        with np.errstate(over="ignore", invalid="ignore"):  # bounds may be infinite
            middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
        numbers = {"low": space.low, "high": space.high}
        numbers |= {"middle": middle.astype(np.float32), "half_width": half.astype(np.float32)}
        for name, values in numbers.items():
            self.register_buffer(
                name, torch.from_numpy(values.reshape(-1).copy()), persistent=False
            )

    def choose(self, outputs: Tensor) -> Tensor:
        """Return the means, float32 [B, width], squashed if requested."""
        means = outputs[:, : self.low.shape[0]]
        return means.tanh() if self._squashed else means

    def to_env(self, choice: Tensor) -> Tensor:
        """Return actions [B, ...] within the bounds."""
        if self._squashed:
            choice = self.middle + self.half_width * choice
        action = choice.to(self.low.dtype).maximum(self.low).minimum(self.high)
        return action.reshape(action.shape[0], *self._shape)
