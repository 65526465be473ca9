"""Training images, changed at random: a crop out of a black border, a mirror image.

What is done to a sample in an epoch depends on the seed, the epoch and the sample alone, so not on
who computes it, in which batch, or after which other sample.
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
    """What is done to images [N, H, W, C] at random.

    Args:
        padding: Pixels of black on each side, out of which an image of the old size is cut. 0: no.
        flip: Whether half of them are mirrored, left and right.
        seed: Of the run.
    """

    padding: int
    flip: bool
    seed: int

    def __bool__(self) -> bool:
        """Whether anything is done."""
        return self.padding > 0 or self.flip

    def __call__(self, images: Array, samples: Sequence[int], epoch: int) -> Array:
        """Return a changed copy of images.

        Args:
            images: [N, H, W, C].
            samples: Which samples these are.
            epoch: In which they are learnt from.
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
