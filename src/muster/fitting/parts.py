"""Splits samples into a training set and a test set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.seeding import generator


def split_by_class(
    labels: NDArray[Any], share: float, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the indices of training and test samples, with the same share of each class.

    Args:
        labels: Labels of all samples.
        share: Share of each class for testing: at least one sample, but never all of them.
        seed: Determines which samples.
    """
    tested = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        of_it = np.flatnonzero(labels == label)
        count = min(max(1, round(share * len(of_it))), len(of_it) - 1)
        chosen = generator(seed, "fit", "split", int(label)).permutation(len(of_it))[:count]
        tested[of_it[chosen]] = True
    return np.flatnonzero(~tested), np.flatnonzero(tested)
