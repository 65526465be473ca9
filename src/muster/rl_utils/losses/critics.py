"""Losses of critics: squared errors, and quantile regression (Dabney et al. 2018).

Both return the loss's gradient by the critic's values and the errors, row by row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class CriticLoss(NamedTuple):
    """The loss of one critic on a batch."""

    loss: float
    """The weighted mean."""
    dvalues: Array
    """[B, outputs], its gradient by the values."""
    td_error: Array
    """[B], value - target; of quantiles, their means."""


def squared_loss(values: Array, target: Array, weight: Array) -> CriticLoss:
    """Return half the weighted mean of squared errors.

    Args:
        values: [B, 1].
        target: [B].
        weight: [B], importance.
    """
    error = values[:, 0] - target
    weighted = weight * error
    loss = 0.5 * float(np.mean(weighted * error, dtype=np.float64))
    dvalues = (weighted / len(error)).astype(np.float32)
    return CriticLoss(loss, dvalues[:, None], error)


def quantile_loss(values: Array, targets: Array, weight: Array) -> CriticLoss:
    """Return the weighted mean Huber loss of quantile regression, over all pairs.

    Args:
        values: [B, M], quantiles at (2i + 1) / 2M.
        targets: [B, K], samples of what they are quantiles of.
        weight: [B], importance.
    """
    rows, quantiles = values.shape
    at = ((np.arange(quantiles, dtype=np.float32) + np.float32(0.5)) / quantiles)[None, :, None]
    error = targets[:, None, :] - values[:, :, None]  # [B, M, K]
    slope = np.clip(error, -1, 1)
    huber = slope * (error - np.float32(0.5) * slope)
    side = np.abs(at - (error < 0))  # how much an error on this side counts
    loss = float(np.mean(weight * np.mean(side * huber, axis=(1, 2)), dtype=np.float64))
    share = weight[:, None] / np.float32(rows * quantiles)
    dvalues = -np.mean(side * slope, axis=2) * share
    td_error = values.mean(axis=1) - targets.mean(axis=1)
    return CriticLoss(loss, dvalues.astype(np.float32), td_error.astype(np.float32))
