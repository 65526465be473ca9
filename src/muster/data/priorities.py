"""Prioritised replay (Schaul et al. 2016): draw large errors more often, and weight them less.

    P(i) = p_i^alpha / sum_j p_j^alpha      p_i = |td_error_i| + eps, the largest so far when new
    w_i  = (N P(i))^-beta / max_j w_j       the maximum over the batch

The tree holds p^alpha. A batch of B makes one draw from each of B equal parts of the sum.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import Array
from muster.data.sum_tree import SumTree
from muster.errors import OptionError

EPS = 1e-6
"""Added to every |td_error|, so that every transition can be drawn. In units of reward."""

_TOO_LARGE = 1e100  # a million of these can still be added


class Priorities:
    """The priorities of the last `capacity` transitions, by id."""

    def __init__(self, capacity: int, alpha: float) -> None:
        self._capacity = capacity
        self._alpha = alpha
        self._tree = SumTree(capacity)
        self.largest = 1.0
        """The largest p^alpha so far: the initial value of new transitions."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return self._tree.nbytes

    @property
    def total(self) -> float:
        """The sum of all p^alpha."""
        return self._tree.total

    def of(self, ids: Array) -> NDArray[np.float64]:
        """Return p^alpha of stored ids."""
        return self._tree.at(np.asarray(ids, np.int64) % self._capacity)

    def add(self, first: int, count: int, size: NDArray[np.float64] | None = None) -> None:
        """Set the priorities of the new ids first .. first + count - 1.

        Args:
            first: The first id.
            count: Number of ids.
            size: [count], absolute errors from actors; None gives all ids the largest priority so
                far.
        """
        if size is not None:
            ids = np.arange(first, first + count)
            self.put(ids[-self._capacity :], size[-self._capacity :])
        else:
            self._fill(first, count, self.largest)

    def clear(self, first: int, count: int) -> None:
        """Exclude the new ids first .. first + count - 1 from draws."""
        self._fill(first, count, 0.0)

    def put(self, ids: NDArray[np.int64], size: NDArray[np.float64] | None = None) -> None:
        """Set the priorities of stored ids from absolute errors; without errors, the largest."""
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
        """Return the ids at these fractions, in [0, 1), of the sum."""
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
            OptionError: The arrays do not match, an id was never handed out, or an error is not
                finite. Nothing is changed then.
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
        """Raise OptionError if `load` cannot accept this, or a value is not above `least`."""
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
        """Replace all priorities by those of the checked `state`."""
        values = np.zeros(self._capacity)
        values[self._stored_leaves(inserted)] = state["priorities"]
        self._tree.load(values)
        self.largest = float(state["largest"])

    def _stored_leaves(self, inserted: int) -> NDArray[np.int64]:
        return np.arange(max(0, inserted - self._capacity), inserted) % self._capacity


def check_errors(ids: Array, td_error: Array) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return ids and absolute errors, of one shape; raise OptionError for invalid errors."""
    size = np.abs(np.asarray(td_error, np.float64))
    ids = np.asarray(ids)
    if ids.dtype.kind != "i" or ids.shape != size.shape:
        raise OptionError(
            f"index is {ids.dtype} {ids.shape}, td_error has shape {size.shape}",
            "each priority belongs to one id",
            "buffer.update_priorities(batch.index, td_error)",
        )
    if not (size < _TOO_LARGE).all():  # false for NaN, too
        where = np.flatnonzero(~(size < _TOO_LARGE))[0]
        raise OptionError(
            f"td_error[{where}]={size.flat[where]} of transition {ids.flat[where]}",
            "a priority is a finite number; a loss that diverges shows here first",
            "check the rewards and the learning rate; max_grad_norm=10.0",
        )
    return ids, size


def check_given_out(ids: NDArray[np.int64], inserted: int) -> None:
    """Raise OptionError for ids that no batch can have contained."""
    if ids.size and not 0 <= ids.min() <= ids.max() < inserted:
        raise OptionError(
            f"index reaches from {ids.min()} to {ids.max()}",
            f"this buffer has given out the ids 0 .. {inserted - 1}",
            "buffer.update_priorities(batch.index, td_error)",
        )
