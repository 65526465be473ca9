"""Which samples are learnt from in which update, and in which slot: decided by the seed alone.

epoch -> order of all samples -> batches -> slots

An update is a whole number of batches since the run began, so any of them can be found again by its
number, in whatever process.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.seeding import generator

Rows = NDArray[np.int64]

_LEAST = 2
"""Samples of a slot, at least: batch norm of a single number would be no norm."""


@dataclass(frozen=True)
class BatchPlan:
    """How a training set is cut into batches and slots.

    The last batch of an epoch has what is left. A single sample that is left joins the batch before
    it. A batch too small for all slots leaves the last ones empty.
    """

    samples: int
    batch_size: int
    slots: int
    seed: int

    @property
    def batches(self) -> int:
        """Updates of an epoch."""
        whole, rest = divmod(self.samples, self.batch_size)
        return max(1, whole + (rest >= _LEAST))

    def place(self, update: int) -> tuple[int, int]:
        """Return the epoch of an update, and which batch of it that is."""
        return divmod(update, self.batches)

    def span(self, batch: int) -> range:
        """Return which places in an epoch's order a batch of it has."""
        is_last = batch == self.batches - 1
        start = batch * self.batch_size
        return range(start, self.samples if is_last else start + self.batch_size)

    def samples_before(self, update: int) -> int:
        """Return how many samples all updates before this one have had."""
        epoch, batch = self.place(update)
        return epoch * self.samples + batch * self.batch_size

    def order(self, epoch: int) -> Rows:
        """Return all samples in the order of an epoch."""
        drawn = generator(self.seed, "fit", "order", epoch).permutation(self.samples)
        return drawn.astype(np.int64)

    def shares(self, size: int) -> list[slice]:
        """Return which rows of a batch of this size each slot has; the last may have none."""
        used = max(1, min(self.slots, size // _LEAST))
        edges = [size * slot // used for slot in range(used + 1)] + [size] * (self.slots - used)
        return [slice(*edge) for edge in itertools.pairwise(edges)]


def share_of(member: int, members: int, count: int) -> range:
    """Return which of `count` slots a member computes."""
    return range(count * member // members, count * (member + 1) // members)
