"""`Draws`: which stored ids may be drawn, and with which probability.

    uniform transitions    every stored id equally, without any bookkeeping
    by priority            p^alpha of each id in a sum tree
    sequences              only ids at which a complete sequence begins have a priority

Not for use by two threads at once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import Array
from muster.data.priorities import Priorities, check_errors
from muster.data.schema import PRIORITY
from muster.data.sequences import SequenceStarts
from muster.data.steps import FragmentSource, Steps
from muster.data.store import TransitionStore
from muster.data.units import Sequence, Transition

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Draws:
    """Chooses ids.

    Args:
        store: Holds the transitions.
        unit: The unit of one draw.
        alpha: Exponent of priorities; None for uniform draws.
        expected: Whether actors provide the priority of a new transition.
    """

    def __init__(
        self,
        store: TransitionStore,
        unit: Transition | Sequence,
        alpha: float | None,
        expected: bool,
    ) -> None:
        self._store = store
        self._expected = expected and alpha is not None
        self.starts: SequenceStarts | None = None
        """Where sequences begin, if the unit is a sequence."""
        capacity = store.rows * store.num_envs
        if isinstance(unit, Sequence):
            self.starts = SequenceStarts(unit, store.num_envs, capacity)
        self.priorities: Priorities | None = None
        if alpha is not None or self.starts is not None:
            # Sequences are found by their priorities; uniform draws use p^0.
            self.priorities = Priorities(capacity, alpha or 0.0)

    @property
    def mass(self) -> float:
        """Total weight of draws: the sum of p^alpha; if uniform, the number of transitions."""
        return float(len(self._store)) if self.priorities is None else self.priorities.total

    def chance(self, ids: Array) -> Floats:
        """Return the probability of drawing each of these stored ids."""
        if self.priorities is None:
            return np.full(np.shape(ids), 1.0 / len(self._store))
        return self.priorities.of(ids) / self.priorities.total

    def check(self, columns: dict[str, Any]) -> Floats | None:
        """Return the errors that actors provide; raise OptionError if they are invalid."""
        if not self._expected:
            return None
        given = np.reshape(columns[PRIORITY.name], -1)
        return check_errors(np.arange(given.size), given)[1]

    def insert(self, steps: Steps, size: Floats | None, source: FragmentSource | None) -> None:
        """Store steps, and make them available for draws; `size` is the result of `check`."""
        first = self._store.inserted
        continued = self._store.add(steps, source)
        if self.priorities is not None and self.starts is None:
            self.priorities.add(first, steps.end.size, size)
        elif self.priorities is not None and self.starts is not None:
            self.priorities.clear(first, steps.end.size)
            self._begin(self.starts.add(first, steps.end, source, continued))

    def cut(self, envs: NDArray[np.bool_]) -> None:
        """End the running episodes of these environments [N] at the newest row."""
        self._store.cut(envs)
        if self.starts is not None:
            self._begin(self.starts.cut(envs))

    def _begin(self, ids: Ints) -> None:
        """Make sequences that are now complete available for draws."""
        assert self.priorities is not None and self.starts is not None
        ids = ids[ids >= self._store.inserted - len(self._store)]
        size = None
        if ids.size and self._expected:
            unit = self.starts.unit
            error, valid = self._store.along(PRIORITY.name, ids, unit.length)
            size = unit.priority(error, self.starts.learnt(ids, valid))
        self.priorities.put(ids, size)

    def ids_at(self, where: Floats) -> Ints:
        """Return the ids at these fractions, in [0, 1), of the mass."""
        if self.priorities is not None:
            found = self.priorities.ids_at(where.reshape(-1), self._store.inserted)
            return found.reshape(where.shape)
        # Not rng.integers, which takes five times as long. A number below 1 times a size never
        # rounds up to the size, and the bias, stored / 2^53, is negligible.
        stored = len(self._store)
        ids = (where * stored).astype(np.int64)
        ids += self._store.inserted - stored
        return ids

    def state(self) -> dict[str, Any]:
        """Return a copy of the state, without the transitions."""
        state = {} if self.priorities is None else self.priorities.state(self._store.inserted)
        if self.starts is not None:
            state["sequences"] = self.starts.state()
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Load a state into the store and this object; if it is rejected, nothing is changed."""
        if self.priorities is not None:
            least = 0.0 if self.starts is None else -1.0
            self.priorities.check(state, state["inserted"], least)
        self._store.load(state)
        if self.priorities is not None:
            self.priorities.load(state, self._store.inserted)
        if self.starts is not None:
            self.starts.load(state["sequences"])
