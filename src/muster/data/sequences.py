"""Where sequences begin, updated as steps are added, and how a draw becomes a batch.

    add(rows of steps) -> ids of first steps of sequences that are complete now -> their priorities
    read(ids)          -> SequenceBatch [B, L, ...], padded and masked

A sequence is complete when its last step is stored, or its episode is over. A draw costs the same
as a draw of transitions: the leaves of the sum tree are transitions, and those at which no complete
sequence begins have no priority.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.batch import SequenceBatch
from muster.data.kernels import TERMINATED
from muster.data.steps import FragmentSource
from muster.data.store import Paths
from muster.data.units import Sequence

Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Lane:
    """The running episodes of one source's environments."""

    length: Ints
    """[N]: steps so far."""
    ids: Ints
    """[L, N]: ids of the last L steps, by their number in the episode modulo L."""
    known: NDArray[np.bool_]
    """[N]: whether the first of these steps began the episode."""


class SequenceStarts:
    """Finds the steps at which a complete sequence begins.

    Args:
        unit: Definition of a sequence.
        num_envs: Environments of each source.
        capacity: Transitions of the store.
    """

    def __init__(self, unit: Sequence, num_envs: int, capacity: int) -> None:
        self.unit = unit
        self._num_envs = num_envs
        self._capacity = capacity
        self._oldest = 0
        self._lanes: dict[Hashable, _Lane] = {}
        self._begins = np.zeros(capacity, np.bool_)
        """For a sequence's first step, by id modulo capacity: whether it begins an episode."""

    def add(
        self, first: int, end: NDArray[Any], source: FragmentSource | None, continued: bool
    ) -> Ints:
        """Return the first ids of the sequences that these steps complete.

        Args:
            first: The id of the first step.
            end: [T, N]: where episodes end.
            source: The source that collected the steps.
            continued: Whether they continue where this source stopped.
        """
        found: list[int] = []
        self._oldest = first + end.size - self._capacity
        name = None if source is None else source.name
        lane = self._lanes.get(name)
        if lane is None or not continued:
            if lane is not None:  # nothing will complete the open sequences
                found += self._over(lane, range(self._num_envs))
            lane = self._lanes[name] = self._new_lane(source is None or source.number == 1)
        unit = self.unit
        envs = np.arange(self._num_envs)
        for t, ends in enumerate(end):
            lane.ids[lane.length % unit.length, envs] = first + t * self._num_envs + envs
            lane.length += 1
            begin = lane.length - unit.length
            for env in np.flatnonzero((begin >= 0) & (begin % unit.stride == 0)).tolist():
                found.append(self._complete(lane, env, int(begin[env])))
            ended = np.flatnonzero(ends)
            if ended.size:
                found += self._over(lane, ended.tolist())
        return np.array(found, np.int64)

    def cut(self, envs: NDArray[np.bool_]) -> Ints:
        """End the running episodes of these environments; return the sequences this completes."""
        lane = self._lanes.get(None)
        return np.array(
            [] if lane is None else self._over(lane, np.flatnonzero(envs).tolist()), np.int64
        )

    def _over(self, lane: _Lane, envs: Any) -> list[int]:
        """Return the shorter sequences at the end of episodes, and begin new episodes."""
        unit, found = self.unit, []
        for env in envs:
            length = int(lane.length[env])
            last_whole = (length - unit.length) // unit.stride if length >= unit.length else -1
            for begin in range((last_whole + 1) * unit.stride, length, unit.stride):
                if length - begin > unit.burn_in or (begin == 0 and lane.known[env]):
                    found.append(self._complete(lane, env, begin))
            lane.length[env], lane.known[env] = 0, True
        return found

    def _complete(self, lane: _Lane, env: int, begin: int) -> int:
        number = int(lane.ids[begin % self.unit.length, env])
        if number >= self._oldest:  # else its place has been reused
            self._begins[number % self._capacity] = begin == 0 and lane.known[env]
        return number

    def _new_lane(self, known: bool) -> _Lane:
        envs, length = self._num_envs, self.unit.length
        return _Lane(
            np.zeros(envs, np.int64), np.zeros((length, envs), np.int64), np.full(envs, known)
        )

    def batch(
        self, paths: Paths, ids: Ints, weight: NDArray[Any], powers: NDArray[np.float64]
    ) -> SequenceBatch:
        """Return paths as a batch, with n-step rewards that stay within the sequences."""
        length = self.unit.length
        step = np.arange(length)
        valid = step < paths.steps[:, None]
        ahead = np.clip(paths.steps[:, None] - step, 0, self.unit.n)
        padded = np.pad(paths.reward.astype(np.float64), ((0, 0), (0, self.unit.n)))
        reward = np.zeros(paths.reward.shape)
        for k in range(self.unit.n):
            reward += powers[k] * padded[:, k : k + length]
        over = np.take_along_axis(paths.end, paths.steps[:, None] - 1, axis=1) & TERMINATED != 0
        last = step + ahead >= paths.steps[:, None]
        return SequenceBatch(
            paths.obs,
            paths.action,
            reward.astype(np.float32),
            np.where(valid & ~(last & over), powers[ahead], 0.0).astype(np.float32),
            step + ahead,
            valid,
            self.learnt(ids, valid),
            weight,
            ids,
            paths.columns,
        )

    def learnt(self, ids: Ints, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which existing steps [B, L] of sequences are not burn-in."""
        begins = self._begins[ids % self._capacity]
        found: NDArray[np.bool_] = valid & (
            begins[:, None] | (np.arange(self.unit.length) >= self.unit.burn_in)
        )
        return found

    def state(self) -> dict[str, Any]:
        """Return the running episodes of this process; those of other sources end here."""
        lane = self._lanes.get(None) or self._new_lane(True)
        return {
            "length": lane.length.copy(),
            "ids": lane.ids.copy(),
            "known": lane.known.copy(),
            "begins": self._begins.copy(),
            "oldest": self._oldest,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue the running episodes of a state."""
        names = ("length", "ids", "known")
        self._lanes = {None: _Lane(*(state[name].copy() for name in names))}
        self._begins[:] = state["begins"]
        self._oldest = state["oldest"]
