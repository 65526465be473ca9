"""Prioritized replay (Schaul et al. 2016): draw what surprised more often, and weigh it less.

    P(i) = p_i^alpha / sum_j p_j^alpha      p_i = |td_error_i| + eps, the largest so far when new
    w_i  = (N P(i))^-beta / max_j w_j       the maximum over the batch

The tree holds p^alpha. A batch of B takes one draw from each of B equal parts of the sum.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import Array
from muster.data.sum_tree import SumTree
from muster.errors import OptionError

EPS = 1e-6
"""Added to every |td_error|, so that nothing becomes impossible to draw. In units of reward."""

_TOO_LARGE = 1e100  # a million of them can still be added


class Priorities:
    """The priorities of the last `capacity` transitions, by id."""

    def __init__(self, capacity: int, alpha: float) -> None:
        self._capacity = capacity
        self._alpha = alpha
        self._tree = SumTree(capacity)
        self.largest = 1.0
        """The largest p^alpha that was ever known: what is new gets it."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return self._tree.nbytes

    @property
    def total(self) -> float:
        """The sum of all p^alpha."""
        return self._tree.total

    def of(self, ids: Array) -> NDArray[np.float64]:
        """Return the p^alpha of ids that are stored."""
        return self._tree.at(np.asarray(ids, np.int64) % self._capacity)

    def add(self, first: int, count: int, size: NDArray[np.float64] | None = None) -> None:
        """Give the new ids first .. first + count - 1 a priority: the largest, or of their errors.

        Args:
            first: The first of them.
            count: How many.
            size: [count], of errors that actors have found; else all get the largest so far.
        """
        if size is not None:
            ids = np.arange(first, first + count)
            self.put(ids[-self._capacity :], size[-self._capacity :])
        else:
            self._fill(first, count, self.largest)

    def clear(self, first: int, count: int) -> None:
        """Have nothing drawn of the new ids first .. first + count - 1."""
        self._fill(first, count, 0.0)

    def put(self, ids: NDArray[np.int64], size: NDArray[np.float64] | None = None) -> None:
        """Set the priorities of stored ids by the size of their errors; without: the largest."""
        value = np.full(ids.size, self.largest)
        if size is not None:
            value = (size.ravel() + EPS) ** self._alpha
        if ids.size:
            self._tree.put(ids.ravel().astype(np.int64) % self._capacity, value)
            self.largest = max(self.largest, float(value.max()))

    def _fill(self, first: int, count: int, value: float) -> None:
        first, count = first + max(0, count - self._capacity), min(count, self._capacity)
        start = first % self._capacity
        room = min(count, self._capacity - start)
        self._tree.fill(start, start + room, value)
        if room < count:
            self._tree.fill(0, count - room, value)

    def draw(
        self, uniform: NDArray[np.float64], inserted: int, beta: float
    ) -> tuple[NDArray[np.int64], Array]:
        """Return ids and importance weights for uniform random numbers in [0, 1), all [B]."""
        part = self._tree.total / uniform.size
        ids, value = self._find((np.arange(uniform.size) + uniform) * part, inserted)
        weight = ((value.min() / value) ** beta).astype(np.float32)
        return ids, weight

    def ids_at(self, where: NDArray[np.float64], inserted: int) -> NDArray[np.int64]:
        """Return the ids at these parts, in [0, 1), of the sum."""
        return self._find(where * self._tree.total, inserted)[0]

    def _find(
        self, mass: NDArray[np.float64], inserted: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        leaf, value = self._tree.find(mass)
        newest = inserted - 1
        return newest - (newest - leaf) % self._capacity, value

    def update(self, ids: Array, td_error: Array, inserted: int, stored: int) -> None:
        """Set the priorities of those `ids` that are still stored.

        Raises:
            OptionError: the arrays do not fit each other, an id was never given out, or an error is
                not a finite number. Nothing is changed then.
        """
        ids, size = check_errors(ids, td_error)
        check_given_out(ids, inserted)
        late = ids < inserted - stored
        if late.any():
            ids, size = ids[~late], size[~late]
        self.put(ids, size)

    def state(self, inserted: int) -> dict[str, Any]:
        """Return a copy of the priorities, oldest first."""
        return {
            "priorities": self._tree.values()[self._stored_leaves(inserted)],
            "largest": self.largest,
        }

    def check(self, state: dict[str, Any], inserted: int, least: float) -> None:
        """Raise OptionError if `load` cannot take this, or one of them is not above `least`."""
        values = np.asarray(state["priorities"])
        wanted = (min(inserted, self._capacity),)
        fine = values.dtype == np.float64 and values.shape == wanted
        within = (values > least).all() and (values < _TOO_LARGE).all()
        if not fine or not within or not 0 < state["largest"] < _TOO_LARGE:
            raise OptionError(
                f"priorities are {values.dtype} {values.shape}, the largest {state['largest']!r}",
                f"they are {wanted} float64 numbers above 0",
                "load a state that state_dict() returned",
            )

    def load(self, state: dict[str, Any], inserted: int) -> None:
        """Hold exactly what the checked `state` holds."""
        values = np.zeros(self._capacity)
        values[self._stored_leaves(inserted)] = state["priorities"]
        self._tree.load(values)
        self.largest = float(state["largest"])

    def _stored_leaves(self, inserted: int) -> NDArray[np.int64]:
        return np.arange(max(0, inserted - self._capacity), inserted) % self._capacity


def check_errors(ids: Array, td_error: Array) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return ids and the sizes of their errors, of one shape; refuse what cannot be a priority."""
    size = np.abs(np.asarray(td_error, np.float64))
    ids = np.asarray(ids)
    if ids.dtype.kind != "i" or ids.shape != size.shape:
        raise OptionError(
            f"index is {ids.dtype} {ids.shape}, td_error has shape {size.shape}",
            "each priority belongs to one id",
            "buffer.update_priorities(batch.index, td_error)",
        )
    if not (size < _TOO_LARGE).all():  # NaN is not smaller either
        where = np.flatnonzero(~(size < _TOO_LARGE))[0]
        raise OptionError(
            f"td_error[{where}]={size.flat[where]} of transition {ids.flat[where]}",
            "a priority is a finite number; a loss that diverges shows here first",
            "look at the reward and the learning rate; max_grad_norm=10.0",
        )
    return ids, size


def check_given_out(ids: NDArray[np.int64], inserted: int) -> None:
    """Refuse ids that no batch can have had."""
    if ids.size and not 0 <= ids.min() <= ids.max() < inserted:
        raise OptionError(
            f"index reaches from {ids.min()} to {ids.max()}",
            f"this buffer has given out the ids 0 .. {inserted - 1}",
            "buffer.update_priorities(batch.index, td_error)",
        )
