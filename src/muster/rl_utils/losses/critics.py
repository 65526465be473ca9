"""Losses of critics: squared errors, and quantile regression (Dabney et al. 2018).

Both process some rows of a batch, and return their contribution to the loss of the whole batch, its
gradient w.r.t. the critics' values, and the errors, row by row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class CriticLoss(NamedTuple):
    """The contribution of some rows to the loss of a batch, averaged over critics."""

    loss: float
    """The weighted sum, divided by the rows of the whole batch."""
    dvalues: Array
    """[B, critics, outputs], each critic's gradient w.r.t. its values."""
    td_error: Array
    """[B], value - target, averaged over critics; for quantiles, of their means."""


def squared_loss(values: Array, target: Array, weight: Array, rows: int) -> CriticLoss:
    """Return half the weighted mean of squared errors.

    Args:
        values: [B, critics, 1].
        target: [B].
        weight: [B], importance weights.
        rows: Rows in the whole batch.
    """
    error = values[:, :, 0] - target[:, None]
    weighted = weight[:, None] * error
    loss = 0.5 * float(np.sum(weighted * error, dtype=np.float64)) / (rows * error.shape[1])
    dvalues = (weighted / np.float32(rows)).astype(np.float32)
    return CriticLoss(loss, dvalues[:, :, None], error.mean(axis=1))


def quantile_loss(values: Array, targets: Array, weight: Array, rows: int) -> CriticLoss:
    """Return the weighted mean Huber loss of quantile regression, over all pairs.

    Args:
        values: [B, critics, M], quantiles at (2i + 1) / 2M.
        targets: [B, K], samples of the distribution that the quantiles describe.
        weight: [B], importance weights.
        rows: Rows in the whole batch.
    """
    _, critics, quantiles = values.shape
    at = ((np.arange(quantiles, dtype=np.float32) + np.float32(0.5)) / quantiles)[None, :, None]
    dvalues = np.empty(values.shape, np.float32)
    share = weight[:, None] / np.float32(rows * quantiles)
    total = 0.0
    for k in range(critics):  # one critic at a time, because the pairs are many
        error = targets[:, None, :] - values[:, k, :, None]  # [B, M, K]
        slope = np.clip(error, -1, 1)
        huber = slope * (error - np.float32(0.5) * slope)
        side = np.abs(at - (error < 0))  # the weight of errors on this side
        total += float(np.sum(weight * np.mean(side * huber, axis=(1, 2)), dtype=np.float64))
        dvalues[:, k] = -np.mean(side * slope, axis=2) * share
    td_error = values.mean(axis=(1, 2)) - targets.mean(axis=1)
    return CriticLoss(total / (rows * critics), dvalues, td_error.astype(np.float32))
