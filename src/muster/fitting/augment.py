"""Random changes of training images: a crop from a black border, a mirror image.

The change of a sample in an epoch depends on the seed, the epoch and the sample alone, so not on
the process that computes it, its batch, or the samples before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.seeding import numbered_seeds

Array = NDArray[Any]


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images [N, H, W, C].

    Args:
        padding: Black pixels added on each side before a crop of the old size. 0: no crop.
        flip: Whether half of the images are mirrored, left and right.
        seed: Seed of the run.
    """

    padding: int
    flip: bool
    seed: int

    def __bool__(self) -> bool:
        """Whether any change is made."""
        return self.padding > 0 or self.flip

    def __call__(self, images: Array, samples: Sequence[int], epoch: int) -> Array:
        """Return a changed copy of images.

        Args:
            images: [N, H, W, C].
            samples: The indices of these samples.
            epoch: The epoch in which they are learned from.
        """
        if not self:
            return images
        seed_of = numbered_seeds(self.seed, "fit", "augment", epoch)
        drawn = [seed_of(int(sample)) for sample in samples]
        changed = images
        if self.padding:
            changed = self._cropped(images, drawn)
        if self.flip:
            mirrored = np.array([draw >> 60 & 1 for draw in drawn], bool)
            changed = np.where(mirrored[:, None, None, None], changed[:, :, ::-1], changed)
        return changed

    def _cropped(self, images: Array, drawn: Sequence[int]) -> Array:
        border, places = self.padding, 2 * self.padding + 1
        _, height, width, _ = images.shape
        around = ((0, 0), (border, border), (border, border), (0, 0))
        padded = np.pad(images, around)
        cropped = np.empty_like(images)
        for row, draw in enumerate(drawn):
            y, x = draw % places, (draw >> 24) % places
            cropped[row] = padded[row, y : y + height, x : x + width]
        return cropped
