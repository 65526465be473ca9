"""Storage of transitions: one row per vector step, overwritten in order, read by id.

    add    T rows of every column; the observation after the last -> the row after it, where the
           next step overwrites it; the true last observations of ended episodes -> FinalObs
    read   ids -> n-step transitions, or whole paths of steps

Transitions are numbered as they arrive: id = step * num_envs + env. There is one row more than
there are steps to store, for the next observation of the newest row. The next observation of any
transition is `num_envs` slots further on, unless its episode ended or its fragment did. Several
sources (actors) may add fragments in turn: the last row of a fragment is OPEN, and stores how many
rows further on the same source continues, once it has.
"""

import math
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.data import kernels
from muster.data.finals import FinalObs
from muster.data.kernels import OPEN, TERMINATED, TRUNCATED
from muster.data.obs import Array, Obs
from muster.data.obs_columns import put_rows, storage_of
from muster.data.schema import REWARD, Column, Schema
from muster.data.steps import FragmentSource, Steps
from muster.errors import OptionError

_END = Column("end", np.dtype(np.uint8))
_FOLLOWS = Column("follows", np.dtype(np.uint32))
_MOST_SOURCES = 256


class TransitionStore:
    """The last `rows` steps of `num_envs` environments. Not for use by two threads at once."""

    def __init__(self, rows: int, num_envs: int, schema: Schema) -> None:
        self.rows = rows
        self.num_envs = num_envs
        self.inserted = 0
        self._schema = schema
        shape = (rows + 1, num_envs)
        slots = (rows + 1) * num_envs
        # Zeros cost nothing until they are written: the operating system allocates pages lazily.
        self._obs = [storage_of(each, *shape) for each in schema.obs.columns]
        self._action = np.zeros(shape + schema.action.shape, schema.action.dtype)
        self._reward = np.zeros(shape, np.float32)
        self._end = np.zeros(shape, np.uint8)
        self._columns = [np.zeros(shape + each.shape, each.dtype) for each in schema.columns]
        self._finals = FinalObs(schema.obs.columns, slots, rows * num_envs)
        self._row = 0
        self._follows = np.zeros(rows + 1, np.uint32)
        """For an OPEN row: how many rows further on its source continues; 0 while it has not."""
        self._last: dict[Hashable, tuple[int, int]] = {}
        """For each source: the number of its last fragment, and the first id of its last row."""
        # The same memory, as the kernels see it.
        self._flat_reward = self._reward.reshape(slots)
        self._flat_end = self._end.reshape(slots)
        self._read_action = _readable(self._action)
        self._read_columns = [_readable(each) for each in self._columns]

    def __len__(self) -> int:
        return min(self.inserted, self.rows * self.num_envs)

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        arrays = [self._action, self._reward, self._end, *self._columns]
        stored = sum(each.nbytes for each in self._obs) + self._finals.nbytes
        return stored + sum(each.nbytes for each in arrays)

    def add(self, steps: Steps, source: FragmentSource | None = None) -> bool:
        """Store checked steps, over the oldest ones where there is no room.

        Args:
            steps: The steps.
            source: Their source, if there are several. Without it they follow the newest row.

        Returns:
            Whether they continue the previous steps of the source, or without one, of this store.
        """
        continued = self.inserted > 0 if source is None else self._link(source)
        if len(steps.end) <= self.rows:
            self._write(steps)
        else:
            for start in range(0, len(steps.end), self.rows):
                self._write(steps.part(start, start + self.rows))
        if source is not None:
            self._last[source.name] = source.number, self.inserted - self.num_envs
            self._follows[self._newest] = 0
            self._end_newest(OPEN, np.ones(self.num_envs, np.bool_))
        return continued

    def _write(self, steps: Steps) -> None:
        """Store steps, at most as many as there are rows."""
        count, row = len(steps.end), self._row
        after = (row + count) % (self.rows + 1)
        # Once the store is full, the rows after the first one hold the oldest steps.
        self._finals.release(self._count_ends(row + 1, count))
        for storage, value, then in zip(self._obs, steps.obs, steps.after, strict=True):
            storage.put(row, value)
            storage.put(after, then[None])
        put_rows(self._action, row, steps.action)
        put_rows(self._reward, row, steps.reward)
        put_rows(self._end, row, steps.end)
        for column, value in zip(self._columns, steps.columns, strict=True):
            put_rows(column, row, value)
        if len(steps.finals[0]):
            t, env = np.nonzero(steps.end)
            slots = (row + t) % (self.rows + 1) * self.num_envs + env
            self._finals.keep(slots, steps.finals)
        self._row = after
        self.inserted += count * self.num_envs

    @property
    def _newest(self) -> int:
        """The row of the newest step."""
        return self._row - 1 if self._row else self.rows

    def cut(self, envs: NDArray[np.bool_]) -> None:
        """End the running episodes of these environments [N] at the newest row."""
        if self.inserted:
            self._end_newest(TRUNCATED, envs)

    def _end_newest(self, flag: int, envs: NDArray[np.bool_]) -> None:
        """Mark the newest row as an end; the next observation, kept as final, is still its own."""
        row = self._newest
        end = self._end[row]
        end[envs & (end == OPEN)] = flag
        new = np.flatnonzero(envs & (end == 0))
        if new.size:
            end[new] = flag
            values = [storage.of_row(self._row, new) for storage in self._obs]
            self._finals.keep(row * self.num_envs + new, values)

    def _link(self, source: FragmentSource) -> bool:
        """Link the source's last row to the next one; return whether no fragment is missing."""
        oldest = self.inserted - len(self)
        number, last = self._last.get(source.name, (source.number, -1))
        if len(self._last) > _MOST_SOURCES:
            self._last = {who: each for who, each in self._last.items() if each[1] >= oldest}
        if number + 1 != source.number:
            return False
        if last >= oldest:
            ring = self.rows + 1
            row = last // self.num_envs % ring
            self._follows[row] = (self._row - row) % ring
        return True

    def _count_ends(self, row: int, count: int) -> int:
        """Return how many ends there are in `count` rows from `row` on."""
        row %= self.rows + 1
        found = int(np.count_nonzero(self._end[row : row + count]))
        over = row + count - (self.rows + 1)
        return found + int(np.count_nonzero(self._end[:over])) if over > 0 else found

    def read(
        self, ids: NDArray[np.int64], powers: NDArray[np.float64]
    ) -> tuple[Obs, Array, Array, Obs, Array, dict[str, Array]]:
        """Return obs, action, reward sum, next_obs, discount, columns of the transitions `ids`.

        Args:
            ids: The transitions, of any shape; all of them must be stored.
            powers: gamma^0 .. gamma^n.
        """
        count, lead = ids.size, ids.shape
        slot = np.empty(count, np.int64)
        next_at = np.empty(count, np.int64)
        reward = np.empty(count, np.float32)
        discount = np.empty(count, np.float32)
        kernels.resolve(
            ids.reshape(count),
            self.inserted,
            self.num_envs,
            powers,
            self._flat_reward,
            self._flat_end,
            self._finals.at,
            self._follows,
            slot,
            next_at,
            reward,
            discount,
        )
        return (
            self._now(slot, lead),
            _taken(self._read_action, slot, lead),
            reward.reshape(lead),
            self._seen(next_at, lead),
            discount.reshape(lead),
            self._taken_columns(slot, lead),
        )

    def terminates(self, ids: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
        """Return whether each of `ids` is at most `length` steps from its episode's termination."""
        path, count, _, _ = self._paths(ids.reshape(-1), length)
        last = path[np.arange(ids.size), count - 1]
        flags: NDArray[np.bool_] = self._flat_end[last] & TERMINATED != 0
        return flags.reshape(ids.shape)

    def read_paths(self, ids: NDArray[np.int64], length: int) -> "Paths":
        """Return the steps from each of `ids` [B] to the episode's end, at most `length`."""
        lead = (ids.size, length)
        path, count, valid, slot = self._paths(ids, length)
        return Paths(
            self._seen(path.reshape(-1), (ids.size, length + 1)),
            _taken(self._read_action, slot, lead),
            self._flat_reward[slot].reshape(lead) * valid,
            self._flat_end[slot].reshape(lead) * valid,
            self._taken_columns(slot, lead),
            count,
        )

    def along(self, name: str, ids: NDArray[np.int64], length: int) -> tuple[Array, Array]:
        """Return one column of the result of `read_paths`, and which of its steps exist."""
        _, _, valid, slot = self._paths(ids, length)
        return self._taken_columns(slot, valid.shape)[name], valid

    def _paths(self, ids: NDArray[np.int64], length: int) -> tuple[Array, ...]:
        """Return places [B, L + 1], numbers of steps [B], whether each exists, slots of steps."""
        path = np.empty((ids.size, length + 1), np.int64)
        count = np.empty(ids.size, np.int64)
        kernels.follow(
            ids,
            self.inserted,
            self.num_envs,
            self._flat_end,
            self._finals.at,
            self._follows,
            path,
            count,
        )
        valid = np.arange(length) < count[:, None]
        # Entries after the last step are read from the first one, and marked as not valid.
        return path, count, valid, np.where(valid, path[:, :-1], path[:, :1]).reshape(-1)

    def _taken_columns(self, slot: NDArray[np.int64], lead: tuple[int, ...]) -> dict[str, Array]:
        pairs = zip(self._schema.columns, self._read_columns, strict=True)
        return {each.name: _taken(column, slot, lead) for each, column in pairs}

    def _now(self, slot: NDArray[np.int64], lead: tuple[int, ...]) -> Obs:
        """Return the observations at these slots."""
        found = []
        for storage, column in zip(self._obs, self._schema.obs.columns, strict=True):
            one = np.empty((slot.size, column.width), column.dtype)
            storage.take(slot, one)
            found.append(one.reshape(lead + column.shape))
        return self._schema.obs.join(found)

    def _seen(self, place: NDArray[np.int64], lead: tuple[int, ...]) -> Obs:
        """Return the observations at these slots, or final ones where below 0."""
        found = []
        columns = zip(self._obs, self._schema.obs.columns, self._finals.arrays, strict=True)
        for storage, column, final in columns:
            one = np.empty((place.size, column.width), column.dtype)
            storage.take_next(final, place, one)
            found.append(one.reshape(lead + column.shape))
        return self._schema.obs.join(found)

    def state(self) -> dict[str, Any]:
        """Return a copy of the contents, oldest row first."""
        stored = len(self) // self.num_envs
        rows = self._live_rows(stored)
        with_next = self._live_rows(stored + 1) if stored else rows
        end = self._end[rows]
        places = self._finals.at[self._slots_of(rows)[end != 0]]
        finals = [
            array[places].reshape(len(places), *each.shape)
            for array, each in zip(self._finals.arrays, self._schema.obs.columns, strict=True)
        ]
        state = {
            "inserted": self.inserted,
            "obs": self._schema.obs.join([storage.state(with_next) for storage in self._obs]),
            "action": self._action[rows],
            "reward": self._reward[rows],
            "end": end,
            "final_obs": self._schema.obs.join(finals),
        }
        if self._schema.columns:
            pairs = zip(self._schema.columns, self._columns, strict=True)
            state["columns"] = {each.name: column[rows] for each, column in pairs}
        if (end == OPEN).any():
            state["follows"] = self._follows[rows]
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Replace all contents by those of `state`, or raise OptionError and change nothing.

        Columns that an earlier version did not save are 0. No source continues its fragments.
        """
        inserted = state["inserted"]
        if type(inserted) is not int or inserted < 0 or inserted % self.num_envs:
            raise OptionError(
                f"inserted={inserted!r} is not possible",
                f"it counts the transitions of {self.num_envs} environments",
                "load a state that state_dict() returned",
            )
        schema = self._schema
        stored = min(inserted // self.num_envs, self.rows)
        lead = (stored, self.num_envs)
        with_next = (stored + 1 if stored else 0, self.num_envs)
        parts = schema.obs.parts("obs", state["obs"])
        obs = [each.check(part, with_next) for each, part in zip(self._obs, parts, strict=True)]
        action = schema.action.check(state["action"], lead)
        reward = REWARD.check(state["reward"], lead)
        end = _END.check(state["end"], lead)
        finals = schema.obs.split("final_obs", state["final_obs"], (int(np.count_nonzero(end)),))
        saved = state.get("columns", {})
        columns = [
            each.check(saved.get(each.name, _zeros(each, lead)), lead) for each in schema.columns
        ]
        follows = _FOLLOWS.check(state.get("follows", _zeros(_FOLLOWS, lead[:1])), lead[:1])

        self.inserted = inserted
        self._row = (inserted // self.num_envs) % (self.rows + 1)
        rows = self._live_rows(stored)
        for storage, value in zip(self._obs, obs, strict=True):
            storage.load(self._live_rows(with_next[0]), value)
        self._action[rows] = action
        self._reward[rows] = reward
        self._end[:] = 0
        self._end[rows] = end
        for column, value in zip(self._columns, columns, strict=True):
            column[rows] = value
        self._follows[rows] = follows
        self._last.clear()
        self._finals.clear()
        self._finals.keep(self._slots_of(rows)[end != 0], finals)

    def _slots_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        slots: NDArray[np.int64] = rows[:, None] * self.num_envs + np.arange(self.num_envs)
        return slots

    def _live_rows(self, count: int) -> NDArray[np.int64]:
        """Return the places of `count` rows, starting with the oldest."""
        oldest = self._row - len(self) // self.num_envs
        return np.arange(oldest, oldest + count) % (self.rows + 1)


class Paths(NamedTuple):
    """Consecutive steps: B paths of up to L steps."""

    obs: Obs
    """[B, L + 1, ...]: the observation before each step, and after the last one."""
    action: Array
    reward: Array
    """[B, L]; 0 after the last step."""
    end: Array
    columns: dict[str, Array]
    steps: NDArray[np.int64]
    """[B]: the number of steps."""


def _readable(column: Array) -> tuple[Array, tuple[int, ...]]:
    """Return a column [rows, N, ...] as kernels read it, [slots, width], and an item's shape."""
    shape = column.shape[2:]
    return column.reshape(column.shape[0] * column.shape[1], math.prod(shape)), shape


def _taken(
    column: tuple[Array, tuple[int, ...]], slot: NDArray[np.int64], lead: tuple[int, ...]
) -> Array:
    """Return the items of a readable column at these slots, in this leading shape."""
    flat, shape = column
    found = np.empty((slot.size, flat.shape[1]), flat.dtype)
    kernels.take(flat, slot, found)
    return found.reshape(lead + shape)


def _zeros(column: Column, lead: tuple[int, ...]) -> Array:
    return np.zeros(lead + column.shape, column.dtype)
