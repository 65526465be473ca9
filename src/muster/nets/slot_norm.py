"""Batch norm whose statistics do not depend on which process computes which part of a batch.

A batch is divided into slots. In training, a slot is normalised by its own mean and standard
deviation ("ghost batches", Hoffer et al. 2017), and both are recorded:

    collect        after a slot's forward pass: its means and variances, as one row
    take_over      the running averages move towards the mean of all rows, weighted by samples and
                   summed in the order of slots

So the numbers are the same for any number of processes, and all processes hold the same running
averages for evaluation.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Array = NDArray[np.float32]


class SlotStatistics:
    """The statistics of a network's batch norms.

    Args:
        module: The network. From now on, its batch norms write only the statistics of the last
            batch to their buffers; their `momentum` is used for averaging here.
    """

    def __init__(self, module: nn.Module) -> None:
        kind = nn.modules.batchnorm._BatchNorm
        self._norms: list[Any] = [
            part for part in module.modules() if isinstance(part, kind) and part.track_running_stats
        ]
        self._shares = [0.1 if norm.momentum is None else norm.momentum for norm in self._norms]
        for norm in self._norms:
            norm.momentum = 1.0
        self._buffers: list[torch.Tensor] = [
            each for norm in self._norms for each in (norm.running_mean, norm.running_var)
        ]
        self.size = sum(each.numel() for each in self._buffers)
        """Numbers in a row."""
        self.running = np.zeros(self.size, np.float32)
        """Running averages, for evaluation."""
        self._share = np.zeros(self.size, np.float32)
        self.collect(self.running)
        start = 0
        for norm, share in zip(self._norms, self._shares, strict=True):
            width = 2 * norm.running_mean.numel()
            self._share[start : start + width] = share
            start += width

    def collect(self, row: Array) -> None:
        """Write the statistics of the last slot that was passed forward to a row."""
        start = 0
        for buffer in self._buffers:
            row[start : start + buffer.numel()] = buffer.numpy()
            start += buffer.numel()

    def take_over(self, rows: Array, samples: NDArray[np.float64]) -> None:
        """Move the running averages towards those of a batch.

        Args:
            rows: [slots, size]; rows without samples are ignored.
            samples: Number of samples of each slot.
        """
        if not self.size:
            return
        total = np.zeros(self.size, np.float32)
        for row, count in zip(rows, samples / samples.sum(), strict=True):
            if count:
                total += row * np.float32(count)
        self.running += (total - self.running) * self._share

    def evaluating(self) -> None:
        """Put the running averages into the network, for evaluation mode."""
        start = 0
        for buffer in self._buffers:
            piece = self.running[start : start + buffer.numel()]
            buffer.copy_(torch.from_numpy(piece))
            start += buffer.numel()
        for norm in self._norms:
            norm.num_batches_tracked.zero_()  # it would count only the slots of this process
