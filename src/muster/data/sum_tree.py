"""A sum tree: draw leaves in proportion to their values, and change values, in O(log n).

A binary tree in one float64 array: node i has the children 2i and 2i + 1, node 1 is the root, the
leaves are the second half. A parent is always computed as left + right, never by adding a
difference, so no error accumulates and the leaves alone determine every bit of the tree. Batches go
down and up level by level, because the loads of one level are independent of each other.
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def find_numpy(tree: Floats, mass: Floats, leaf: Ints, value: Floats) -> None:
    """NumPy equivalent of `find`."""
    leaf[:] = 1
    rest = mass.copy()
    for _ in range((tree.size // 2).bit_length() - 1):
        leaf *= 2
        left = tree[leaf]
        right = (rest >= left) & (tree[leaf + 1] > 0.0)
        rest = np.where(right, rest - left, rest)
        leaf += right
    value[:] = tree[leaf]
    leaf -= tree.size // 2


@jit(find_numpy)
def find(tree: Floats, mass: Floats, leaf: Ints, value: Floats) -> None:
    """Find the leaf at which the running sum of leaves passes each `mass` [B].

    Rounding may leave a mass that no leaf covers; it then gets the last leaf on its path with a
    value above 0, never a leaf without one.
    """
    leaves = tree.size // 2
    for b in range(mass.size):
        leaf[b] = 1
        value[b] = mass[b]
    level = 1
    while level < leaves:
        level *= 2
        for b in range(mass.size):
            child = 2 * leaf[b]
            left = tree[child]
            rest = value[b]
            # Arithmetic instead of branches, half of which a processor would mispredict.
            right = (rest >= left) & (tree[child + 1] > 0.0)
            value[b] = rest - left * right
            leaf[b] = child + right
    for b in range(mass.size):
        value[b] = tree[leaf[b]]
        leaf[b] -= leaves


def put_numpy(tree: Floats, leaf: Ints, value: Floats) -> None:
    """NumPy equivalent of `put`."""
    node = leaf + tree.size // 2
    tree[node] = value
    for _ in range((tree.size // 2).bit_length() - 1):
        node >>= 1
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@jit(put_numpy)
def put(tree: Floats, leaf: Ints, value: Floats) -> None:
    """Set leaves to new values; if a leaf appears twice, its last value counts."""
    leaves = tree.size // 2
    for b in range(leaf.size):
        tree[leaves + leaf[b]] = value[b]
    shift = 1
    while leaves >> shift > 0:
        for b in range(leaf.size):
            node = (leaves + leaf[b]) >> shift
            tree[node] = tree[2 * node] + tree[2 * node + 1]
        shift += 1


def fill_numpy(tree: Floats, start: int, stop: int, value: float) -> None:
    """NumPy equivalent of `fill`."""
    low, high = start + tree.size // 2, stop - 1 + tree.size // 2
    tree[low : high + 1] = value
    while low > 1:
        low >>= 1
        high >>= 1
        below = tree[2 * low : 2 * high + 2]
        tree[low : high + 1] = below[0::2] + below[1::2]


@jit(fill_numpy)
def fill(tree: Floats, start: int, stop: int, value: float) -> None:
    """Set the leaves start .. stop - 1 to one value."""
    low, high = start + tree.size // 2, stop - 1 + tree.size // 2
    for node in range(low, high + 1):
        tree[node] = value
    while low > 1:
        low >>= 1
        high >>= 1
        for node in range(low, high + 1):
            tree[node] = tree[2 * node] + tree[2 * node + 1]


class SumTree:
    """Values >= 0 of `size` leaves, initially 0."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._leaves = 1 << (size - 1).bit_length()
        self._tree = np.zeros(2 * self._leaves)

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._tree[1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return self._tree.nbytes

    def find(self, mass: Floats) -> tuple[Ints, Floats]:
        """Return, for each mass in [0, total), the leaf where the running sum passes it.

        Returns:
            Leaves, int64 [B], and their values, float64 [B].
        """
        leaf = np.empty(mass.size, np.int64)
        value = np.empty(mass.size)
        find(self._tree, mass, leaf, value)
        return leaf, value

    def put(self, leaf: Ints, value: Floats) -> None:
        """Set these leaves [B] to these values [B]; of a repeated leaf the last value counts."""
        put(self._tree, leaf, value)

    def fill(self, start: int, stop: int, value: float) -> None:
        """Set the leaves start .. stop - 1, at least one, to the same value."""
        fill(self._tree, start, stop, value)

    def at(self, leaf: Ints) -> Floats:
        """Return the values of these leaves."""
        found: Floats = self._tree[self._leaves + leaf]
        return found

    def values(self) -> Floats:
        """Return a copy of the leaves, [size]."""
        return self._tree[self._leaves : self._leaves + self.size].copy()

    def load(self, values: Floats) -> None:
        """Set all leaves to these values [size]."""
        self._tree[self._leaves : self._leaves + self.size] = values
        start = self._leaves
        while start > 1:
            below = self._tree[start : 2 * start]
            self._tree[start // 2 : start] = below[0::2] + below[1::2]
            start //= 2
