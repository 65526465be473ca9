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
        share: Share of each class for testing: at least one sample, but never all of them. A class
            of a single sample has none for testing: a network cannot be tested on a class that it
            never learnt from.
        seed: Determines which samples.
    """
    tested = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        of_it = np.flatnonzero(labels == label)
        count = min(max(1, round(share * len(of_it))), len(of_it) - 1)
        chosen = generator(seed, "fit", "split", int(label)).permutation(len(of_it))[:count]
        tested[of_it[chosen]] = True
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def split_episodes(episodes: int, share: float, seed: int) -> NDArray[Any]:
    """Return which episodes are for testing, as bool: at least one, but never all of them.

    Steps of one episode are alike, so a test on other steps of an episode that was learnt from
    would say little: an episode is in one of the two sets as a whole.

    Args:
        episodes: Number of episodes, at least two.
        share: Share of them for testing.
        seed: Determines which ones.
    """
    count = min(max(1, round(share * episodes)), episodes - 1)
    tested = np.zeros(episodes, bool)
    tested[generator(seed, "fit", "episodes").permutation(episodes)[:count]] = True
    return tested
