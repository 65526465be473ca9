"""Which samples each update learns from, and in which slot: determined by the seed alone.

epoch -> order of all samples -> batches -> slots

An update is identified by the number of batches since the run began, so any process can reconstruct
it from its number.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.seeding import generator

Rows = NDArray[np.int64]

_LEAST = 2
"""Minimum number of samples of a slot: batch norm needs more than one."""


@dataclass(frozen=True)
class BatchPlan:
    """How a training set is divided into batches and slots.

    The last batch of an epoch has the rest. A single remaining sample joins the batch before it. A
    batch too small for all slots leaves the last ones empty.
    """

    samples: int
    batch_size: int
    slots: int
    seed: int

    @property
    def batches(self) -> int:
        """Number of updates of an epoch."""
        whole, rest = divmod(self.samples, self.batch_size)
        return max(1, whole + (rest >= _LEAST))

    def place(self, update: int) -> tuple[int, int]:
        """Return the epoch of an update, and the index of its batch."""
        return divmod(update, self.batches)

    def span(self, batch: int) -> range:
        """Return the positions of a batch in an epoch's order."""
        is_last = batch == self.batches - 1
        start = batch * self.batch_size
        return range(start, self.samples if is_last else start + self.batch_size)

    def samples_before(self, update: int) -> int:
        """Return the number of samples in all updates before this one."""
        epoch, batch = self.place(update)
        return epoch * self.samples + batch * self.batch_size

    def order(self, epoch: int) -> Rows:
        """Return all samples in the order of an epoch."""
        drawn = generator(self.seed, "fit", "order", epoch).permutation(self.samples)
        return drawn.astype(np.int64)

    def shares(self, size: int) -> list[slice]:
        """Return the rows of each slot in a batch of this size; the last slots may be empty."""
        used = max(1, min(self.slots, size // _LEAST))
        edges = [size * slot // used for slot in range(used + 1)] + [size] * (self.slots - used)
        return [slice(*edge) for edge in itertools.pairwise(edges)]


def share_of(member: int, members: int, count: int) -> range:
    """Return the slots, of `count`, that a member computes."""
    return range(count * member // members, count * (member + 1) // members)
