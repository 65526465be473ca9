"""Where transitions lie: one row per vector step, overwritten in order, read by id.

    add    obs -> row t;  next_obs -> row t + 1, where the next obs will overwrite it, and where an
           episode ended also into FinalObs
    read   ids -> n-step transitions

Transitions are numbered as they come: id = step * num_envs + env. There is one row more than there
are steps to remember, so the newest row's next observation has its place too, and the next
observation of any transition is `num_envs` slots further on unless its episode ended.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data import kernels
from muster.data.batch import Array, Obs
from muster.data.finals import FinalObs
from muster.data.kernels import TRUNCATED
from muster.data.layout import FLAG, REWARD, Field, ObsLayout
from muster.errors import OptionError

Step = tuple[list[Array], Array, Array, list[Array], Array, Array]


class TransitionStore:
    """The last `rows` steps of `num_envs` environments. Not for use by two threads at once."""

    def __init__(self, rows: int, num_envs: int, layout: ObsLayout, action: Field) -> None:
        self.rows = rows
        self.num_envs = num_envs
        self.inserted = 0
        self._layout = layout
        self._action_field = action
        shape = (rows + 1, num_envs)
        slots = (rows + 1) * num_envs
        # Zeros cost nothing until they are written: the operating system hands out pages late.
        self._obs = [np.zeros(shape + each.shape, each.dtype) for each in layout.fields]
        self._action = np.zeros(shape + action.shape, action.dtype)
        self._reward = np.zeros(shape, np.float32)
        self._end = np.zeros(shape, np.uint8)
        self._finals = FinalObs(layout.fields, slots, rows * num_envs)
        self._row = 0
        # The same memory, as the kernels see it.
        self._flat_obs = [
            array.reshape(slots, each.width)
            for array, each in zip(self._obs, layout.fields, strict=True)
        ]
        self._flat_action = self._action.reshape(slots, action.width)
        self._flat_reward = self._reward.reshape(slots)
        self._flat_end = self._end.reshape(slots)

    def __len__(self) -> int:
        return min(self.inserted, self.rows * self.num_envs)

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken."""
        columns = [*self._obs, self._action, self._reward, self._end]
        return sum(column.nbytes for column in columns) + self._finals.nbytes

    def check(
        self,
        lead: tuple[int, ...],
        obs: object,
        action: object,
        reward: object,
        next_obs: object,
        terminated: object,
        truncated: object,
    ) -> Step:
        """Return a step's arrays, or raise OptionError; `lead` is [N], or [T, N] for many steps."""
        return (
            self._layout.split("obs", obs, lead),
            self._action_field.check("action", action, lead),
            REWARD.check("reward", reward, lead),
            self._layout.split("next_obs", next_obs, lead),
            FLAG.check("terminated", terminated, lead),
            FLAG.check("truncated", truncated, lead),
        )

    def add(self, step: Step) -> None:
        """Store one checked step, over the oldest one if there is no room."""
        obs, action, reward, next_obs, terminated, truncated = step
        row = self._row
        after = row + 1 if row < self.rows else 0
        # The row after the newest is the oldest one's, once the store is full.
        self._finals.release(int(np.count_nonzero(self._end[after])))
        for column, value in zip(self._obs, obs, strict=True):
            column[row] = value
        for column, value in zip(self._obs, next_obs, strict=True):
            column[after] = value
        self._action[row] = action
        self._reward[row] = reward
        self._end[row] = 0
        self._row = after
        self.inserted += self.num_envs
        if np.count_nonzero(terminated) or np.count_nonzero(truncated):
            self._end_episodes(row, terminated + np.uint8(TRUNCATED) * truncated)

    def cut(self, envs: NDArray[np.bool_]) -> None:
        """End the running episodes of these environments [N] at the newest row."""
        row = self._row - 1 if self._row else self.rows
        if self.inserted:
            self._end_episodes(row, np.where(envs & (self._end[row] == 0), TRUNCATED, 0))

    def _end_episodes(self, row: int, end: NDArray[Any]) -> None:
        """Note ends in the newest row; what follows it is still its own next observation."""
        envs = np.flatnonzero(end)
        self._end[row, envs] = end[envs]
        values = [column[self._row, envs] for column in self._obs]
        self._finals.keep(row * self.num_envs + envs, values)

    def read(
        self, ids: NDArray[np.int64], powers: NDArray[np.float64]
    ) -> tuple[Obs, Array, Array, Obs, Array]:
        """Return obs, action, reward sum, next_obs, discount of the transitions `ids`.

        Args:
            ids: Which, of any shape; every one must be stored.
            powers: gamma^0 .. gamma^n.
        """
        lead = ids.shape
        count = ids.size
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
            slot,
            next_at,
            reward,
            discount,
        )
        obs = []
        next_obs = []
        finals = self._finals.arrays
        for number, field in enumerate(self._layout.fields):
            store = self._flat_obs[number]
            now = np.empty((count, field.width), field.dtype)
            kernels.take(store, slot, now)
            obs.append(now.reshape(lead + field.shape))
            then = np.empty((count, field.width), field.dtype)
            kernels.take_next(store, finals[number], next_at, then)
            next_obs.append(then.reshape(lead + field.shape))
        field = self._action_field
        action = np.empty((count, field.width), field.dtype)
        kernels.take(self._flat_action, slot, action)
        return (
            self._layout.join(obs),
            action.reshape(lead + field.shape),
            reward.reshape(lead),
            self._layout.join(next_obs),
            discount.reshape(lead),
        )

    def state(self) -> dict[str, Any]:
        """Return a copy of what is stored, oldest row first."""
        stored = len(self) // self.num_envs
        rows = self._live_rows(stored)
        with_next = self._live_rows(stored + 1) if stored else rows
        end = self._end[rows]
        slots = (rows[:, None] * self.num_envs + np.arange(self.num_envs))[end != 0]
        places = self._finals.at[slots]
        finals = [
            array[places].reshape(len(places), *each.shape)
            for array, each in zip(self._finals.arrays, self._layout.fields, strict=True)
        ]
        return {
            "inserted": self.inserted,
            "obs": self._layout.join([column[with_next] for column in self._obs]),
            "action": self._action[rows],
            "reward": self._reward[rows],
            "end": end,
            "final_obs": self._layout.join(finals),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Hold exactly what `state` holds, or raise OptionError and change nothing."""
        inserted = state["inserted"]
        if type(inserted) is not int or inserted < 0 or inserted % self.num_envs:
            raise OptionError(
                f"inserted={inserted!r} is not possible",
                f"it counts the transitions of {self.num_envs} environments",
                "load a state that state_dict() returned",
            )
        stored = min(inserted // self.num_envs, self.rows)
        lead = (stored, self.num_envs)
        with_next = (stored + 1 if stored else 0, self.num_envs)
        obs = self._layout.split("obs", state["obs"], with_next)
        action = self._action_field.check("action", state["action"], lead)
        reward = REWARD.check("reward", state["reward"], lead)
        end = Field(np.dtype(np.uint8), ()).check("end", state["end"], lead)
        finals = self._layout.split("final_obs", state["final_obs"], (int(np.count_nonzero(end)),))

        self.inserted = inserted
        self._row = (inserted // self.num_envs) % (self.rows + 1)
        rows = self._live_rows(stored)
        for column, value in zip(self._obs, obs, strict=True):
            column[self._live_rows(len(value))] = value
        self._action[rows] = action
        self._reward[rows] = reward
        self._end[:] = 0
        self._end[rows] = end
        self._finals.clear()
        slots = (rows[:, None] * self.num_envs + np.arange(self.num_envs))[end != 0]
        self._finals.keep(slots, finals)

    def _live_rows(self, count: int) -> NDArray[np.int64]:
        """Return where `count` rows from the oldest on lie."""
        oldest = self._row - len(self) // self.num_envs
        return np.arange(oldest, oldest + count) % (self.rows + 1)
