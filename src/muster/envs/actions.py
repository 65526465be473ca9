"""Actions: checked before the envs get them, and recorded while their episodes run.

    actions of the policy -> checked array [N, ...] -> a row for each env, in its own numbering
                                  └─ ActionLog: the actions to apply again to restore an episode

To a policy every discrete action counts from 0; a space with another start is shifted here. Spaces
of several parts come here as one space (`flat_actions.py`).
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np

from muster.envs.errors import EnvError, RefusedValue
from muster.envs.flat_actions import FlatDiscrete
from muster.envs.observations import Array, all_finite

LONGEST_LOG = 2**17
"""Maximum number of recorded vector steps. A longer episode is restarted instead of restored: an
env that never ends must not fill the memory, and replaying it would take too long."""


def action_rows(space: gym.Space[Any], num_envs: int, checks: bool = True) -> "Actions":
    """Return the object that checks actions of this space and converts them for the envs.

    Raises:
        EnvError: Actions of such a space are not supported.
    """
    if isinstance(space, gym.spaces.Discrete):
        return DiscreteActions(space, num_envs, checks)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return MultiDiscreteActions(space, num_envs, checks)
    if isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind in "fiu":
        return BoxActions(space, num_envs, checks)
    raise EnvError(
        f"actions in {space} are not supported",
        "actions are Discrete, MultiDiscrete, MultiBinary, a Box of numbers, or a Tuple or Dict",
        "wrap the env in a gymnasium.ActionWrapper with such a space",
        field="action",
    )


class Actions(ABC):
    """Checks the actions for all envs.

    Attributes:
        space: The space of the policy's actions.
        shape: Shape of one action.
        dtype: Type of checked actions.
    """

    space: gym.Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, num_envs: int, shape: tuple[int, ...], checks: bool) -> None:
        self.shape = shape
        self._wanted = (num_envs, *shape)
        self._checks = checks

    def check(self, actions: Any) -> tuple[Array, list[Any]]:
        """Return the policy's actions as an array [N, ...], and in the form that the envs expect.

        Raises:
            RefusedValue: They are not actions of this space.
        """
        chosen = self._as_array(actions)
        if self._checks:
            self.check_values(chosen)
        chosen = chosen.astype(self.dtype, copy=False)
        return chosen, self.for_envs(chosen)

    @abstractmethod
    def check_values(self, chosen: Array) -> None:
        """Raise RefusedValue if a row is not an action; accepts any number of rows."""

    @abstractmethod
    def in_env_numbers(self, chosen: Array) -> Array:
        """Convert checked or recorded actions to the env's own space."""

    def for_envs(self, chosen: Array) -> list[Any]:
        """Return the converted actions as a list, one for each row."""
        return list(self.in_env_numbers(chosen))

    def _as_array(self, actions: Any) -> Array:
        """Return the actions as a numeric array with one row for each env."""
        wanted = self._wanted
        try:
            chosen = np.asarray(actions)
        except Exception:
            chosen = np.empty(0, object)
        if chosen.dtype.kind in "ifu" and chosen.shape == wanted:
            return chosen
        what = f"has dtype {chosen.dtype} and shape {chosen.shape}, for all envs together"
        raise RefusedValue(
            -1,
            "action",
            what,
            f"step() needs one action in {self.space} for each env: an array of shape {wanted}",
            f"envs.step(np.zeros({wanted}, dtype=np.{self.dtype}))",
        )


class DiscreteActions(Actions):
    """Actions 0..n-1, passed to the envs as Python integers."""

    def __init__(self, space: gym.spaces.Discrete, num_envs: int, checks: bool) -> None:
        super().__init__(num_envs, (), checks)
        self._start, self._n = int(space.start), int(space.n)
        self.space = gym.spaces.Discrete(self._n)
        self.dtype = np.dtype(np.int64)
        # The fastest test for a few small integers; any other value gets the full check.
        self._are_usual = frozenset(range(min(self._n, 4096))).issuperset

    def check(self, actions: Any) -> tuple[Array, list[Any]]:
        """See Actions."""
        chosen = self._as_array(actions)
        values = chosen.tolist()
        if self._checks and (chosen.dtype.kind == "f" or not self._are_usual(values)):
            self.check_values(chosen)
        if chosen.dtype is not self.dtype:
            chosen = chosen.astype(self.dtype)
        return chosen, [value + self._start for value in values] if self._start else values

    def check_values(self, chosen: Array) -> None:
        """See Actions."""
        if chosen.dtype.kind == "f":
            raise _not_whole(chosen, self.space)
        wrong = np.flatnonzero((chosen < 0) | (chosen >= self._n))
        if len(wrong):
            index = int(wrong[0])
            raise _out_of_range(index, int(chosen[index]), self.space)

    def in_env_numbers(self, chosen: Array) -> Array:
        """See Actions."""
        return chosen + self._start

    def for_envs(self, chosen: Array) -> list[Any]:
        """See Actions."""
        values: list[int] = chosen.tolist()
        return [value + self._start for value in values] if self._start else values


class MultiDiscreteActions(Actions):
    """Several actions at once, 0..nvec-1 each."""

    def __init__(self, space: gym.spaces.MultiDiscrete, num_envs: int, checks: bool) -> None:
        self._start = np.asarray(space.start)
        self._nvec = np.asarray(space.nvec)
        super().__init__(num_envs, self._nvec.shape, checks)
        self._env_dtype = np.dtype(space.dtype)
        is_flat = isinstance(space, FlatDiscrete)  # counts from 0, and knows what it stands for
        self.space = space if is_flat else gym.spaces.MultiDiscrete(self._nvec)
        self.dtype = np.dtype(np.int64)

    def check_values(self, chosen: Array) -> None:
        """See Actions."""
        if chosen.dtype.kind == "f":
            raise _not_whole(chosen, self.space)
        inside = (chosen >= 0) & (chosen < self._nvec)
        if not inside.all():
            index = int(np.argwhere(~inside)[0, 0])
            raise _out_of_range(index, chosen[index].tolist(), self.space)

    def in_env_numbers(self, chosen: Array) -> Array:
        """See Actions."""
        return chosen.astype(self._env_dtype) + self._start


class BoxActions(Actions):
    """Numbers, passed to the envs unchanged: not clipped, but never NaN or Inf."""

    def __init__(self, space: gym.spaces.Box, num_envs: int, checks: bool) -> None:
        super().__init__(num_envs, space.shape, checks)
        self.space = space
        self.dtype = np.dtype(space.dtype)

    def _as_array(self, actions: Any) -> Array:
        given = super()._as_array(actions)
        if self.dtype.kind in "iu" and given.dtype.kind == "f":
            raise _not_whole(given, self.space)
        # A copy: an env may change its action in place, and the array belongs to the policy.
        with np.errstate(over="ignore"):
            return np.array(given, self.dtype)

    def check_values(self, chosen: Array) -> None:
        """See Actions."""
        if self.dtype.kind == "f" and not all_finite(chosen):
            index = int(np.argwhere(~np.isfinite(chosen))[0, 0])
            raise RefusedValue(
                index,
                "action",
                f"is {chosen[index].tolist()}",
                "an action that is not finite comes from a policy whose weights are not",
                "check the loss before this step: a smaller lr, or max_grad_norm",
            )

    def in_env_numbers(self, chosen: Array) -> Array:
        """See Actions."""
        return chosen


def _not_whole(chosen: Array, space: gym.Space[Any]) -> RefusedValue:
    wrong = np.argwhere(~np.isfinite(chosen))
    index = int(wrong[0, 0]) if len(wrong) else 0
    return RefusedValue(
        index,
        "action",
        f"is {chosen[index].tolist()}, of dtype {chosen.dtype}",
        f"actions in {space} are integers",
        "actions.astype(np.int64), if they are whole numbers",
    )


def _out_of_range(index: int, value: object, space: gym.Space[Any]) -> RefusedValue:
    return RefusedValue(
        index,
        "action",
        f"is {value}",
        f"the action space is {space}; actions count from 0",
        "take the number of actions from envs.single_action_space",
    )


class ActionLog:
    """The actions of the running episodes: one row per vector step, back to the oldest start.

    Stored as bytes, because appending them costs a quarter of writing into an array.
    """

    def __init__(self, actions: Actions, num_envs: int, longest: int = LONGEST_LOG) -> None:
        self._dtype = actions.dtype
        self._shape = (num_envs, *actions.shape)
        self._row = actions.dtype.itemsize * math.prod(self._shape)
        self._longest = longest
        self._bytes = bytearray()
        self._enough = min(256, longest) * self._row
        self._first = 0
        self._next = 0
        self._starts = [0] * num_envs

    @property
    def size(self) -> int:
        """Bytes in use."""
        return len(self._bytes)

    def append(self, row: bytes) -> None:
        """Record a step; `row` holds the bytes of its checked actions."""
        self._bytes += row
        self._next += 1
        if len(self._bytes) > self._enough:
            self._trim()

    def restart(self, env: int) -> None:
        """Discard the actions of this env: its next action is the first of an episode."""
        self._starts[env] = self._next

    def length(self, env: int) -> int:
        """Return the number of steps in the running episode of this env."""
        return self._next - self._starts[env]

    def episode(self, env: int) -> Array | None:
        """Return the actions of the running episode, or None if it is too long to be kept."""
        start = self._starts[env] - self._first
        if start < 0:
            return None
        rows = np.frombuffer(self._bytes, self._dtype).reshape(-1, *self._shape)
        return rows[start:, env].copy()

    def load(self, episodes: list[Array]) -> None:
        """Load running episodes: for each env the actions since its reset."""
        longest = max(len(actions) for actions in episodes)
        rows = np.zeros((longest, *self._shape), self._dtype)
        for env, actions in enumerate(episodes):
            self._starts[env] = longest - len(actions)
            rows[self._starts[env] :, env] = actions
        self._bytes = bytearray(rows.tobytes())
        self._first, self._next = 0, longest
        self._enough = max(self._enough, len(self._bytes))

    def _trim(self) -> None:
        """Drop rows that no running episode needs, and the older half of one that is too long."""
        oldest = max(self._first, min(self._starts))
        if self._next - oldest > self._longest:
            oldest = self._next - self._longest // 2
        del self._bytes[: (oldest - self._first) * self._row]
        self._first = oldest
        # The next trim comes when as much has been added as is kept now, so its cost is negligible.
        rows = min(max(256, 2 * (self._next - oldest)), self._longest)
        self._enough = rows * self._row
