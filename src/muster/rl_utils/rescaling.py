"""The rescaling of values that replaces clipped rewards (Pohlen et al. 2018, section 3.2).

    h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x

A network learns h of a return: large returns move closer together, small ones stay apart.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def rescale(x: Floats, eps: float = 1e-3) -> Floats:
    """Return h(x), float64."""
    x = np.asarray(x, np.float64)
    scaled: Floats = np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + eps * x
    return scaled


def undo_rescale(y: Floats, eps: float = 1e-3) -> Floats:
    """Return the x with h(x) = y, float64; `eps` must be above 0."""
    y = np.asarray(y, np.float64)  # in float32, root - 1 would have few significant digits
    root = (np.sqrt(1 + 4 * eps * (np.abs(y) + 1 + eps)) - 1) / (2 * eps)
    found: Floats = np.sign(y) * (root**2 - 1)
    return found
