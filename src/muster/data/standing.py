"""The state of every environment at the start of a rollout, so that any worker can continue.

    end of rollout k: worker writes episode, return, length, obs of its envs -> page (k + 1) % pages
                      and the actions of the rollout -> a ring of the last R steps
    restore:          reset with the episode's seed, repeat the actions since then

A rollout's page stays valid while the next rollout is collected, and, if rollouts are collected
ahead, also the one after that.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import at
from muster.data.slots import Fields, SlotPlan, action_field, join_obs, obs_fields, obs_parts
from muster.envs import VectorEnv

Array = NDArray[Any]

_RING_BYTES = 64 << 20
_LONGEST = 2**14


class Standing:
    """The states of all environments of a team.

    Args:
        plan: Layout of the slots.
        arrays: The team's arrays, with those of `fields`.
    """

    def __init__(self, plan: SlotPlan, arrays: Mapping[str, Array]) -> None:
        self._plan = plan
        self._episode = arrays["stand_episode"]
        self._return = arrays["stand_return"]
        self._length = arrays["stand_length"]
        self._obs = {key: arrays["stand_obs" + key] for key in obs_fields(plan.obs_space)}
        self._ring = arrays["stand_ring"]
        self.extra: Array = arrays["stand_extra"]
        """float64 [pages, N, ...]: further values that a worker needs before a rollout."""
        self.state: Array = arrays["stand_state"]
        """float32 [pages, N, state_width]: the recurrent state before a rollout."""

    @staticmethod
    def fields(plan: SlotPlan) -> Fields:
        """Return the shared arrays of the states."""
        pages = (_pages(plan), plan.envs)
        fields: Fields = {
            "stand_episode": (pages, np.int64),
            "stand_return": (pages, np.float64),
            "stand_length": (pages, np.int64),
            "stand_extra": ((*pages, 1), np.float64),
            "stand_state": ((*pages, plan.state_width), np.float32),
        }
        for key, (shape, dtype) in obs_fields(plan.obs_space).items():
            fields["stand_obs" + key] = ((*pages, *shape), dtype)
        shape, dtype = action_field(plan.action_space)
        row = plan.envs * math.prod(shape) * dtype.itemsize
        ring = plan.buffers * plan.steps
        ring += max(plan.steps, min(_LONGEST, _RING_BYTES // max(row, 1)))
        fields["stand_ring"] = ((ring, plan.envs, *shape), dtype)
        return fields

    @property
    def longest(self) -> int:
        """Maximum number of steps of an episode that can be repeated."""
        return len(self._ring) - self._plan.buffers * self._plan.steps

    def page(self, loop: int) -> int:
        """Return the page with the states before rollout `loop`."""
        return loop % _pages(self._plan)

    def write(
        self, loop: int, envs: VectorEnv, columns: slice, actions: Array | None = None
    ) -> None:
        """Write the states of some environments before rollout `loop`.

        Args:
            loop: Number of the coming rollout.
            envs: The environments.
            columns: Their columns.
            actions: Their actions in the previous rollout, [T, n, ...]. None: they were not stepped
                but restored, and know their actions since their episodes began.
        """
        page = self.page(loop)
        books = envs.books()
        self._episode[page, columns] = books.episodes
        self._return[page, columns] = books.returns
        self._length[page, columns] = books.lengths
        for key, part in obs_parts(envs.obs).items():
            self._obs[key][page, columns] = part
        steps, ring = self._plan.steps, len(self._ring)
        if actions is not None:
            self._ring[np.arange((loop - 1) * steps, loop * steps) % ring, columns] = actions
            return
        for column, done in zip(range(columns.start, columns.stop), envs.actions(), strict=True):
            kept = done[len(done) - min(len(done), self.longest) :]
            self._ring[np.arange(loop * steps - len(kept), loop * steps) % ring, column] = kept

    def written(self, loop: int, columns: slice) -> list[tuple[str, Any]]:
        """Return which parts of which arrays were last written before rollout `loop`."""
        page = self.page(loop)
        names = [name for name in self.fields(self._plan) if name != "stand_ring"]
        steps, ring = self._plan.steps, len(self._ring)
        first, last = max(0, loop - 1) * steps % ring, loop * steps % ring
        rows = [slice(first, last)] if first <= last else [slice(first, ring), slice(0, last)]
        return [
            *((name, (page, columns)) for name in names),
            *(("stand_ring", (part, columns)) for part in rows),
        ]

    def state_of(self, loop: int, columns: slice, template: dict[str, Any]) -> dict[str, Any]:
        """Return the state of some environments before a rollout, as a state of a `VectorEnv`.

        Args:
            loop: Number of the rollout.
            columns: The environments.
            template: The `state_dict` of such environments; values known here replace its values.
        """
        page = self.page(loop)
        lengths = self._length[page, columns].copy()
        obs = {key: part[page, columns].copy() for key, part in self._obs.items()}
        state = {
            **template,
            "started": True,
            "episodes": self._episode[page, columns].copy(),
            "obs": join_obs(self._plan.obs_space, obs),
            "lengths": lengths,
        }
        if "actions" in template:
            state["returns"] = self._return[page, columns].copy()
            state["kept"] = lengths <= self.longest
            end = loop * self._plan.steps
            which = zip(range(columns.start, columns.stop), lengths, state["kept"], strict=True)
            episodes = [
                self._ring[np.arange(end - length, end) % len(self._ring), column]
                for column, length, kept in which
                if kept
            ]
            state["actions"] = np.concatenate([self._ring[:0, 0], *episodes])
        return state


def _pages(plan: SlotPlan) -> int:
    return 1 + plan.buffers


def columns_of(state: dict[str, Any], columns: slice) -> dict[str, Any]:
    """Return the part of a `VectorEnv`'s state that belongs to some of its environments."""
    names = ("episodes", "lengths", "returns", "kept")
    cut: dict[str, Any] = {name: state[name][columns] for name in names if name in state}
    cut["obs"] = at(state["obs"], columns)
    if "actions" in state:
        ends = np.concatenate([[0], np.cumsum(np.where(state["kept"], state["lengths"], 0))])
        cut["actions"] = state["actions"][ends[columns.start] : ends[columns.stop]]
    return {**state, **cut, "num_envs": columns.stop - columns.start}
