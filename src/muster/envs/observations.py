"""Observations: from the returned values of single envs to checked arrays with a row per env.

    raws of N envs -> np.array -> shape, dtype -> float32 / int64 / as it is -> finite, in range
                                       └─ RefusedValue(row, field): located only if wrong

All checks work on the whole batch, so that their cost does not grow with the number of envs.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.envs.errors import EnvError, RefusedValue, brief

_FLOAT32 = np.dtype(np.float32)
_FEW = 1024
TOP_BYTES = slice(3 if sys.byteorder == "little" else 0, None, 4)
"""Positions of the bytes of float32 values that hold the sign and most of the exponent."""

Array = NDArray[Any]
Observation = Array | dict[str, Array]
"""Rows for all envs; for a `Dict` space, a dict of such arrays by the space's names."""


def observation_rows(
    space: gym.Space[Any], num_envs: int, checks: bool = True
) -> "Rows | DictRows":
    """Return the object that stacks and checks observations of this space.

    Raises:
        EnvError: Observations of such a space are not supported.
    """
    if isinstance(space, gym.spaces.Dict):
        return DictRows(space, num_envs, checks)
    return _rows(space, "observation", num_envs, checks)


def _rows(space: gym.Space[Any], field: str, num_envs: int, checks: bool) -> "Rows":
    if isinstance(space, gym.spaces.MultiBinary):
        space = gym.spaces.Box(0, 1, space.shape, np.int8)
    if isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind in "fiu":
        return BoxRows(space, field, num_envs, checks)
    if isinstance(space, gym.spaces.Discrete):
        return DiscreteRows(space, field, num_envs, checks)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return MultiDiscreteRows(space, field, num_envs, checks)
    raise EnvError(
        f"an {field} in {space} is not supported",
        "observations are a Box of numbers, a Discrete, MultiDiscrete, MultiBinary, or one Dict of "
        "those",
        "make_envs(lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make(...)))",
        field=field,
    )


class Rows(ABC):
    """One array of rows.

    Attributes:
        space: The space of a row after the conversion.
    """

    space: gym.Space[Any]

    def __init__(
        self,
        field: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        num_envs: int,
        checks: bool,
    ) -> None:
        self.field = field
        self.shape = shape
        self.dtype = dtype
        self._checks = checks
        few = num_envs * math.prod(shape) <= _FEW
        self._quick = _FLOAT32 if dtype == _FLOAT32 and few else None
        # A float may lose precision and an integer may become a float; no other value may change.
        self._casting = "same_kind" if dtype.kind == "f" else "safe"

    def stack(self, raws: Sequence[Any]) -> Array:
        """Return the observations of several envs as the rows of a new array.

        Raises:
            RefusedValue: One of them does not belong to the space.
        """
        if not self._checks:
            return np.array(raws, self.dtype)
        try:
            # Without a dtype, because NumPy would turn strings into numbers and None into NaN.
            batch = np.array(raws)
        except Exception:  # ragged, or an object that cannot become an array
            raise self._first_wrong(raws) from None
        if batch.dtype is self._quick and batch.shape[1:] == self.shape:
            # The first check of all_finite, inlined because it nearly always passes.
            top = batch.tobytes()[TOP_BYTES]
            if 0x7F not in top and 0xFF not in top:
                return batch
        return self._checked(batch, raws)

    def check(self, batch: Array) -> Array:
        """Check rows that are already an array; return them, or a copy with the right dtype."""
        return self._checked(batch, batch)

    def fits(self, batch: object, count: int) -> bool:
        """Whether `batch` looks like the result of `stack` for `count` envs."""
        return (
            isinstance(batch, np.ndarray)
            and batch.shape == (count, *self.shape)
            and batch.dtype == self.dtype
        )

    def copy(self, batch: Array, out: Array | None = None) -> Array:
        """Return a copy of rows, in `out` if given."""
        if out is None:
            return batch.copy()
        out[...] = batch
        return out

    def put(self, batch: Array, indices: Sequence[int], rows: Array) -> None:
        """Replace some rows."""
        for number, index in enumerate(indices):  # a quarter of the cost of batch[indices] = rows
            batch[index] = rows[number]

    def same_bits(self, row: Array, batch: Array, index: int) -> bool:
        """Whether the single row in `row` equals, bit by bit, row `index` of `batch`."""
        return bool(row[0].tobytes() == batch[index].tobytes())

    @abstractmethod
    def check_values(self, batch: Array) -> None:
        """Raise RefusedValue if a row contains a value outside the space."""

    def _checked(self, batch: Array, raws: Sequence[Any] | Array) -> Array:
        if batch.shape[1:] != self.shape or batch.dtype is not self.dtype:
            if batch.shape[1:] != self.shape or not self._may_become(batch.dtype):
                raise self._first_wrong(raws)
            with np.errstate(over="ignore"):  # overflow becomes inf, which is rejected next
                batch = batch.astype(self.dtype)
        self.check_values(batch)
        return batch

    def _may_become(self, dtype: np.dtype[Any]) -> bool:
        return np.can_cast(dtype, self.dtype, self._casting)  # type: ignore[arg-type]

    def _first_wrong(self, raws: Sequence[Any] | Array) -> RefusedValue:
        """Return the error for the first row with a wrong shape or dtype; the batch has one."""
        wanted = f"{self.dtype} of shape {self.shape}"
        for index, raw in enumerate(raws):
            fix = f"np.asarray({self.field}, dtype=np.{self.dtype})"
            try:
                row = np.asarray(raw)
            except Exception:
                what = f"is {brief(raw)}, which is not an array"
                return self._refused(index, what, wanted, "numbers in rows of one length")
            if row.dtype.kind not in "fiub":
                what = f"is {brief(raw)}, which is neither a number nor an array of numbers"
                return self._refused(index, what, wanted, fix)
            if row.shape != self.shape:
                what = f"has shape {row.shape} instead of {self.shape}"
                return self._refused(
                    index, what, wanted, "correct observation_space, or the observation"
                )
            if not self._may_become(row.dtype):
                what = f"has dtype {row.dtype}, which does not fit into {self.dtype}"
                return self._refused(index, what, wanted, fix)
        return self._refused(
            0, "does not stack with those of other envs", wanted, "check observation_space"
        )

    def _refused(self, index: int, what: str, wanted: str, fix: str) -> RefusedValue:
        why = f"its observation_space promises {wanted}"
        return RefusedValue(index, self.field, what, why, fix)


class BoxRows(Rows):
    """Rows of a Box: floats become float32, integers keep their type."""

    def __init__(self, space: gym.spaces.Box, field: str, num_envs: int, checks: bool) -> None:
        dtype = np.dtype(space.dtype)
        if dtype.kind == "f" and dtype != np.float32:
            dtype = np.dtype(np.float32)
            with np.errstate(over="ignore"):
                low, high = space.low.astype(dtype), space.high.astype(dtype)
            space = gym.spaces.Box(low, high, dtype=np.float32)
        super().__init__(field, space.shape, dtype, num_envs, checks)
        self.space = space
        self._floating = dtype.kind == "f"
        self._bounds: tuple[Array, Array] | None = None
        if dtype.kind in "iu":
            ends = np.iinfo(dtype.name)
            if (space.low > ends.min).any() or (space.high < ends.max).any():
                self._bounds = (space.low, space.high)

    def check_values(self, batch: Array) -> None:
        """Raise RefusedValue if a float is not finite, or an integer is out of bounds."""
        if self._floating:
            if not all_finite(batch):
                raise self._not_finite(batch)
        elif self._bounds is not None:
            low, high = self._bounds
            inside = (batch >= low) & (batch <= high)
            if not inside.all():
                index, *place = (int(i) for i in np.argwhere(~inside)[0])
                what = f"is {batch[(index, *place)]} {_at(place)}"
                bounds = f"{low[tuple(place)]} to {high[tuple(place)]}"
                raise self._refused(index, what, bounds, "widen observation_space")

    def _not_finite(self, batch: Array) -> RefusedValue:
        index, *place = (int(i) for i in np.argwhere(~np.isfinite(batch))[0])
        return RefusedValue(
            index,
            self.field,
            f"is {batch[(index, *place)]} {_at(place)}".rstrip(),
            "one value that is not finite makes every weight of a network NaN",
            "look for a division by zero or a diverging simulation in the env",
        )


class DiscreteRows(Rows):
    """Rows of a Discrete: int64 of shape [N]."""

    def __init__(self, space: gym.spaces.Discrete, field: str, num_envs: int, checks: bool) -> None:
        super().__init__(field, (), np.dtype(np.int64), num_envs, checks)
        self.space = space
        self._low, self._high = int(space.start), int(space.start + space.n - 1)

    def check_values(self, batch: Array) -> None:
        """Raise RefusedValue if a value is out of range."""
        values = batch.tolist()
        if min(values) < self._low or max(values) > self._high:
            for index, value in enumerate(values):
                if not self._low <= value <= self._high:
                    wanted = f"{self._low} to {self._high}"
                    raise self._refused(index, f"is {value}", wanted, "widen observation_space")


class MultiDiscreteRows(Rows):
    """Rows of a MultiDiscrete: int64 of shape [N, ...]."""

    def __init__(
        self, space: gym.spaces.MultiDiscrete, field: str, num_envs: int, checks: bool
    ) -> None:
        super().__init__(field, space.shape, np.dtype(np.int64), num_envs, checks)
        self.space = space
        self._low, self._high = space.start, space.start + space.nvec - 1

    def check_values(self, batch: Array) -> None:
        """Raise RefusedValue if a value is out of range."""
        wrong = np.argwhere((batch < self._low) | (batch > self._high))
        if len(wrong):
            index, *place = wrong[0].tolist()
            low, high = self._low[tuple(place)], self._high[tuple(place)]
            raise self._refused(
                index,
                f"{_at(place)} is {batch[tuple(wrong[0])]}",
                f"{low} to {high}",
                "widen observation_space",
            )


class DictRows:
    """One array of rows for each name of a Dict.

    Attributes:
        space: The space of an observation after the conversion.
    """

    def __init__(self, space: gym.spaces.Dict, num_envs: int, checks: bool) -> None:
        self._rows = {
            name: _rows(part, f"observation[{name!r}]", num_envs, checks)
            for name, part in space.spaces.items()
        }
        self.space = gym.spaces.Dict({name: rows.space for name, rows in self._rows.items()})

    def stack(self, raws: Sequence[Any]) -> dict[str, Array]:
        """Return the observations of several envs, each part as the rows of a new array."""
        batch = {}
        for name, rows in self._rows.items():
            try:
                parts = [raw[name] for raw in raws]
            except (KeyError, TypeError, IndexError):
                raise self._first_without(name, raws) from None
            batch[name] = rows.stack(parts)
        return batch

    def check(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Check rows that are already arrays."""
        return {name: rows.check(batch[name]) for name, rows in self._rows.items()}

    def fits(self, batch: object, count: int) -> bool:
        """Whether `batch` looks like the result of `stack` for `count` envs."""
        return isinstance(batch, dict) and all(
            rows.fits(batch.get(name), count) for name, rows in self._rows.items()
        )

    def copy(
        self, batch: dict[str, Array], out: dict[str, Array] | None = None
    ) -> dict[str, Array]:
        """Return a copy of rows, in `out` if given."""
        found = {} if out is None else out
        for name, part in self._rows.items():
            found[name] = part.copy(batch[name], found.get(name))
        return found

    def put(self, batch: dict[str, Array], indices: Sequence[int], rows: dict[str, Array]) -> None:
        """Replace some rows."""
        for name, part in self._rows.items():
            part.put(batch[name], indices, rows[name])

    def same_bits(self, row: dict[str, Array], batch: dict[str, Array], index: int) -> bool:
        """Whether the single row in `row` equals, bit by bit, row `index` of `batch`."""
        return all(
            rows.same_bits(row[name], batch[name], index) for name, rows in self._rows.items()
        )

    def _first_without(self, name: str, raws: Sequence[Any]) -> RefusedValue:
        index = next(
            (i for i, raw in enumerate(raws) if not isinstance(raw, dict) or name not in raw), 0
        )
        return RefusedValue(
            index,
            f"observation[{name!r}]",
            f"is missing from {brief(raws[index])}",
            f"its observation_space is a Dict with {', '.join(map(repr, self._rows))}",
            "return a dict with these keys from reset and step",
        )


def all_finite(batch: Array) -> bool:
    """Whether an array of floats contains neither NaN nor Inf."""
    if batch.dtype is _FLOAT32 and batch.size <= _FEW:
        # The top byte of a float32 is its sign and most of its exponent: these two values mean Inf,
        # NaN or a magnitude above 1.7e38. Searching for them costs a third of np.isfinite, whose
        # code is never in the cache between the steps of envs.
        top = batch.tobytes()[TOP_BYTES]
        if 0x7F not in top and 0xFF not in top:
            return True
    return int(np.count_nonzero(np.isfinite(batch))) == batch.size


def _at(place: list[int]) -> str:
    return f"at {place}" if place else ""
