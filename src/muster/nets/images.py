"""Converts images of any layout for convolutions: [B, channels, height, width], from 0 to 1."""

from torch import Tensor, nn


class ImageInput(nn.Module):
    """Converts uint8 images to the layout and range that convolutions need.

    Args:
        shape: Shape of one image: (height, width, channels), (channels, height, width), or (height,
            width). The channels are the shorter of the two ends.
    """

    channels: int
    size: tuple[int, int]
    """Height and width."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._grey = len(shape) == 2
        self._channels_last = len(shape) == 3 and shape[2] <= shape[0]
        if self._grey:
            self.channels, self.size = 1, (shape[0], shape[1])
        elif self._channels_last:
            self.channels, self.size = shape[2], (shape[0], shape[1])
        else:
            self.channels, self.size = shape[0], (shape[1], shape[2])

    @property
    def channels_first(self) -> bool:
        """Whether the channels are the first dimension of an image."""
        return not self._channels_last

    def forward(self, image: Tensor) -> Tensor:
        """Return float32 [B, channels, height, width] of images [B, *shape]."""
        if self._grey:
            image = image[:, None]
        elif self._channels_last:
            image = image.permute(0, 3, 1, 2)  # a view, and the fastest layout for convolutions
        return image.float() * (1 / 255)
