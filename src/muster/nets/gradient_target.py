"""Autograd's gradients of all parameters of a module, in one vector."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from muster.nets.flat import FlatParameters


class GradientTarget:
    """Has autograd write into a vector that is as long as the flat one.

    Args:
        module: Whose parameters.
        flat: The same as one vector.
        keeps_views: Remember the last vector, for who always has the same. Shared memory that is
            still referred to cannot be closed.
    """

    def __init__(self, module: nn.Module, flat: FlatParameters, keeps_views: bool = False) -> None:
        named = module.named_parameters()
        self._pieces = [(each, flat.names_and_slices[name]) for name, each in named]
        self._keeps_views = keeps_views
        self._last: Any = None
        self._views: list[Tensor] = []

    def write(self, outputs: Sequence[Tensor], derivatives: Sequence[Tensor], grad: Any) -> None:
        """Overwrite `grad` with the gradient of sum(derivatives * outputs).

        Args:
            outputs: What a forward pass made, each good for one gradient.
            derivatives: A tensor like each of them, on the same device.
            grad: Is overwritten: an array on the host, else a tensor of that device.
        """
        grad[:] = 0
        # Autograd adds to a gradient that is there: so it writes into the flat vector itself.
        for (parameter, _), view in zip(self._pieces, self._views_of(grad), strict=True):
            parameter.grad = view
        torch.autograd.backward(outputs, derivatives)
        if not self._keeps_views:
            for parameter, _ in self._pieces:
                parameter.grad = None

    def _views_of(self, grad: Any) -> list[Tensor]:
        if self._keeps_views and grad is self._last:
            return self._views
        if isinstance(grad, np.ndarray):
            views = [torch.from_numpy(grad[at]).view(each.shape) for each, at in self._pieces]
        else:
            views = [grad[at].view(each.shape) for each, at in self._pieces]
        if self._keeps_views:
            self._last, self._views = grad, views
        return views
