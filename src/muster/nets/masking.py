"""Masks illegal actions: their logits or values become so low that they are never chosen."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from muster.envs.masks import ACTION_MASK
from muster.rl_utils.illegal import ILLEGAL


def mask_outputs(outputs: Tensor, obs: Any) -> Tensor:
    """Return outputs [B, K] with `ILLEGAL` where the mask of an observation has a 0."""
    if not isinstance(obs, Mapping) or ACTION_MASK not in obs:
        return outputs
    legal = obs[ACTION_MASK].reshape(outputs.shape) != 0
    return torch.where(legal, outputs, torch.full_like(outputs, ILLEGAL))


class MaskedModel(nn.Module):
    """A model that ignores masks, with its illegal outputs masked.

    Args:
        model: Maps observations to outputs [B, K], or to (outputs, value).
        value_is_best: Whether the value is the best output, which is then a legal one.
    """

    def __init__(self, model: nn.Module, value_is_best: bool = False) -> None:
        super().__init__()
        self.model = model
        self._value_is_best = value_is_best

    def forward(self, obs: Any) -> Any:
        """Return the model's result for observations, with `ILLEGAL` for illegal outputs."""
        made = self.model(obs)
        if isinstance(made, tuple | list):
            outputs, value = made
            outputs = mask_outputs(outputs, obs)
            return outputs, outputs.amax(1) if self._value_is_best else value
        return mask_outputs(made, obs)
