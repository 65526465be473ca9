"""The handwritten digits of scikit-learn: 1,797 images of 8 x 8, real and small."""

import numpy as np

from muster.fitting.data import DIGITS, Dataset
from muster.fitting.errors import DataError
from muster.fitting.parts import split_by_class
from muster.installs import install

_TEST = 0.2
_SCALE = 15
"""Pixels are from 0 to 16; this scales them to integers from 0 to 240."""


def load_digits() -> Dataset:
    """Return the digits; a fifth of each class is the test set, the same for every seed."""
    try:
        from sklearn.datasets import load_digits as sklearn_digits
    except ImportError as error:
        raise DataError(
            f"--data digits cannot be read: {error}",
            "they come with scikit-learn, which muster does not need otherwise",
            install("fit"),
        ) from error
    found = sklearn_digits()
    images = (found.images * _SCALE).astype(np.uint8)[..., None]
    labels = found.target.astype(np.int64)
    train, test = split_by_class(labels, _TEST, seed=0)
    names = tuple(map(str, range(10)))
    return Dataset(DIGITS, images[train], labels[train], images[test], labels[test], names)
