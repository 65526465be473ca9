"""Gradients of all parameters of a module by autograd, in one vector."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from muster.nets.flat import FlatParameters


class GradientTarget:
    """Makes autograd write into a vector that is as long as the flat one.

    Args:
        module: The module with the parameters.
        flat: The same parameters as one vector.
        keeps_views: Keep views of the last vector, for a caller that always passes the same one.
            Shared memory with references cannot be closed.
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
            outputs: Results of a forward pass, each usable for one gradient.
            derivatives: A tensor like each of them, on the same device.
            grad: Overwritten: an array on the host, otherwise a tensor on that device.
        """
        grad[:] = 0
        # Autograd adds to an existing gradient, so it writes directly into the flat vector.
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
