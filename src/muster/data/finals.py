"""Final observations of ended episodes: a ring beside the store that grows as needed.

Episodes end in the order in which the store later overwrites them, so the oldest entry is always
the first to be released, and its place is reused. The ring starts small and doubles when it is
full, up to one place per transition.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import Array
from muster.data.schema import Column

_FIRST_SIZE = 16


class FinalObs:
    """The last observations of ended episodes, found by the slot of their last transition.

    Args:
        fields: The arrays of one observation.
        slots: Slots of the store.
        limit: Maximum number of transitions, and so of final observations.
    """

    def __init__(self, fields: Sequence[Column], slots: int, limit: int) -> None:
        self.at = np.zeros(slots, np.uint32)
        """For every slot whose transition ended an episode: the place of its final observation."""
        self._limit = limit
        self._size = min(_FIRST_SIZE, limit)
        self.arrays = [np.zeros((self._size, each.width), each.dtype) for each in fields]
        """[places, width] each."""
        self._oldest = 0
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return self.at.nbytes + sum(array.nbytes for array in self.arrays)

    def keep(self, slots: NDArray[np.int64], values: Sequence[Array]) -> None:
        """Keep the observations [K, ...] of the transitions at `slots` [K]."""
        if self._count + slots.size > self._size:
            self._grow(self._count + slots.size)
        first = self._oldest + self._count
        places = np.arange(first, first + slots.size) % self._size
        self.at[slots] = places
        for array, value in zip(self.arrays, values, strict=True):
            array[places] = value.reshape(slots.size, array.shape[1])
        self._count += slots.size

    def release(self, count: int) -> None:
        """Release the `count` oldest observations."""
        self._oldest = (self._oldest + count) % self._size
        self._count -= count

    def clear(self) -> None:
        """Release all observations."""
        self.release(self._count)

    def _grow(self, wanted: int) -> None:
        old = self._size
        self._size = min(max(2 * old, wanted), self._limit)
        kept = np.arange(self._oldest, self._oldest + self._count) % old
        for number, array in enumerate(self.arrays):
            larger = np.zeros((self._size, array.shape[1]), array.dtype)
            larger[: self._count] = array[kept]
            self.arrays[number] = larger
        self.at[:] = (self.at.astype(np.int64) - self._oldest) % old
        self._oldest = 0
