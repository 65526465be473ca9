"""Layers whose numbers come from `muster fit` and stay as they are.

They are parameters without a gradient, not buffers: so they are part of the flat vector, and go
wherever weights go.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from muster.nets.images import ImageInput


class StandardizedImage(ImageInput):
    """Images standardised to mean 0 and spread 1 of a training set, as `muster fit` does it.

    Args:
        shape: Shape of one image.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.mean = _fixed(torch.zeros(self.channels))
        self.spread = _fixed(torch.full((self.channels,), 255.0))

    def forward(self, image: Tensor) -> Tensor:
        """Return float32 [B, channels, height, width] of images [B, *shape]."""
        pixels = super().forward(image) * 255
        return (pixels - self.mean[:, None, None]) / self.spread[:, None, None]


class FixedBatchNorm(nn.Module):
    """Batch norm with the averages of an earlier training: an image's result is its own.

    Args:
        channels: Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.running_mean = _fixed(torch.zeros(channels))
        self.running_var = _fixed(torch.ones(channels))

    def forward(self, images: Tensor) -> Tensor:
        """Return [B, channels, H, W]."""
        return functional.batch_norm(
            images, self.running_mean, self.running_var, self.weight, self.bias
        )


def _fixed(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)
