"""Storage of observations: as they arrive, or, for stacked frames, each frame once.

    ObsRows        an array of rows, [rows, environments, ...]
    StackedFrames  numbers of frames, [rows, environments, frames of a stack], and a ring of frames

An Atari observation is the last four frames, three of which are in the previous observation. A
stack whose older frames are the newer frames of the previous row adds one frame to the ring. Any
other stack, such as the first of an episode, adds all its frames. So reading returns exactly what
was written, however an environment builds its stacks.

Frames are numbered as they arrive, and a row never has older frames than the row before it. So
frames that are older than all frames of the oldest row can be overwritten.
"""

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.data import kernels
from muster.data.obs import Array
from muster.data.schema import Column
from muster.errors import OptionError

_MOST_FRAMES = 8
"""Most frames in a stack: an image with more channels is not a stack of frames."""
_SPARE, _GROWTH = 1 / 32, 1.25
"""Initial spare room for the first frames of episodes, and the factor by which it grows when full:
without spare room a ring is as large as the rows."""
_AT_ONCE = 4_096
"""Frames copied at once."""
_FRAMES, _NUMBERS = "frames", "numbers"


class ObsStorage(Protocol):
    """One column of the observations of a store, in a ring of rows."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""

    def put(self, row: int, values: Array) -> None:
        """Write rows [T, N, ...] from `row` on, wrapping around after the last row."""

    def of_row(self, row: int, envs: NDArray[np.int64]) -> Array:
        """Return the observations of some environments in a row."""

    def take(self, slot: NDArray[np.int64], out: Array) -> None:
        """Copy the observations at these slots to `out` [B, width]."""

    def take_next(self, final: Array, place: NDArray[np.int64], out: Array) -> None:
        """Copy observations at these slots, or final ones [places, width] where below 0."""

    def state(self, rows: NDArray[np.int64]) -> Any:
        """Return a copy of these consecutive rows, for `load`."""

    def check(self, saved: Any, lead: tuple[int, ...]) -> Any:
        """Return the saved rows in the form that `load` accepts, or raise OptionError."""

    def load(self, rows: NDArray[np.int64], saved: Any) -> None:
        """Replace all contents by the saved rows."""


def storage_of(column: Column, rows: int, num_envs: int) -> ObsStorage:
    """Return the storage of an observation column with this many rows."""
    if column.dtype == np.uint8 and len(column.shape) == 3 and 2 <= column.shape[0] <= _MOST_FRAMES:
        return StackedFrames(column, rows, num_envs)
    return ObsRows(column, rows, num_envs)


class ObsRows:
    """Observations as they arrive; see `ObsStorage`."""

    def __init__(self, column: Column, rows: int, num_envs: int) -> None:
        self._column = column
        self._rows = np.zeros((rows, num_envs, *column.shape), column.dtype)
        self._flat = self._rows.reshape(rows * num_envs, column.width)

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return self._rows.nbytes

    def put(self, row: int, values: Array) -> None:
        """Write rows."""
        put_rows(self._rows, row, values)

    def of_row(self, row: int, envs: NDArray[np.int64]) -> Array:
        """Return the observations of some environments in a row."""
        found: Array = self._rows[row, envs]
        return found

    def take(self, slot: NDArray[np.int64], out: Array) -> None:
        """Copy the observations at these slots."""
        kernels.take(self._flat, slot, out)

    def take_next(self, final: Array, place: NDArray[np.int64], out: Array) -> None:
        """Copy observations at these slots, or final ones."""
        kernels.take_next(self._flat, final, place, out)

    def state(self, rows: NDArray[np.int64]) -> Any:
        """Return a copy of these rows."""
        return self._rows[rows]

    def check(self, saved: Any, lead: tuple[int, ...]) -> Any:
        """Return the checked rows."""
        return self._column.check(saved, lead)

    def load(self, rows: NDArray[np.int64], saved: Any) -> None:
        """Load these rows."""
        self._rows[rows] = saved


class StackedFrames:
    """Stacks [frames, height, width], oldest frame first, each stored once; see `ObsStorage`."""

    def __init__(self, column: Column, rows: int, num_envs: int) -> None:
        self._column = column
        self._depth = column.shape[0]
        self._width = math.prod(column.shape[1:])
        self._word = np.uint8 if self._width % 8 else np.uint64  # fewer comparisons
        self._numbers = np.zeros((rows, num_envs, self._depth), np.int64)
        self._flat = self._numbers.reshape(rows * num_envs, self._depth)
        frames = num_envs * (rows + int(_SPARE * rows) + self._depth)
        self._ring = np.zeros((frames, self._width), np.uint8)
        self._begin()

    def _begin(self) -> None:
        """Remove all contents."""
        self._next = 0
        """The number of the next frame."""
        self._oldest = 0
        """The number of the oldest frame that is needed."""
        self._last: int | None = None
        """The row that was written last."""
        self._is_full = False
        """Whether every row has been written."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return self._numbers.nbytes + self._ring.nbytes

    def put(self, row: int, values: Array) -> None:
        """Write rows; the first may already be there, as the result of the last step."""
        for stacks in values.reshape(len(values), self._numbers.shape[1], self._depth, self._width):
            self._put(row, np.ascontiguousarray(stacks))
            row = (row + 1) % len(self._numbers)

    def _put(self, row: int, stacks: NDArray[np.uint8]) -> None:
        self._make_room(row, stacks.shape[0] * self._depth)
        before = (row - 1) % len(self._numbers)
        was_there = row == self._last
        # Before the first row there is nothing that a stack could continue.
        follows = self._last is not None and (was_there or before == self._last)
        self._next = kernels.keep_stacks(
            stacks.view(self._word), self._ring.view(self._word), self._numbers[before], follows,
            self._numbers[row], was_there, self._next,
        )  # fmt: skip
        self._last = row
        self._is_full = self._is_full or row == len(self._numbers) - 1

    def _make_room(self, row: int, wanted: int) -> None:
        """Make room for frames, and release those that only rows before the oldest one need."""
        if self._next + wanted - self._oldest <= len(self._ring):
            return
        if self._is_full:  # the row after this one is the oldest
            self._oldest = int(self._numbers[(row + 1) % len(self._numbers)].min())
        count = self._next - self._oldest
        if count + wanted > len(self._ring):
            size = max(int(_GROWTH * len(self._ring)), count + wanted)
            larger = np.zeros((size, self._width), np.uint8)
            for first in range(self._oldest, self._next, _AT_ONCE):
                numbers = np.arange(first, min(first + _AT_ONCE, self._next))
                larger[numbers % size] = self._ring[numbers % len(self._ring)]
            self._ring = larger

    def of_row(self, row: int, envs: NDArray[np.int64]) -> Array:
        """Return the stacks of some environments in a row."""
        found: Array = self._ring[self._numbers[row, envs] % len(self._ring)]
        return found.reshape(len(envs), *self._column.shape)

    def take(self, slot: NDArray[np.int64], out: Array) -> None:
        """Copy the stacks at these slots."""
        kernels.take_stacks(self._ring, self._flat, slot, out)

    def take_next(self, final: Array, place: NDArray[np.int64], out: Array) -> None:
        """Copy stacks at these slots, or final ones."""
        kernels.take_next_stacks(self._ring, self._flat, final, place, out)

    def state(self, rows: NDArray[np.int64]) -> Any:
        """Return the frames that these rows use, and the rows as numbers of these frames."""
        numbers = self._numbers[rows]
        oldest = int(numbers.min()) if numbers.size else self._next
        frames = self._ring[np.arange(oldest, self._next) % len(self._ring)]
        shape = self._column.shape[1:]
        return {_FRAMES: frames.reshape(len(frames), *shape), _NUMBERS: numbers - oldest}

    def check(self, saved: Any, lead: tuple[int, ...]) -> Any:
        """Return frames and numbers, or the stacks that an earlier version saved."""
        if not isinstance(saved, dict):
            return self._column.check(saved, lead)
        frames, numbers = (np.asarray(saved.get(name)) for name in (_FRAMES, _NUMBERS))
        wanted = (*lead, self._depth)
        fits = frames.shape[1:] == self._column.shape[1:] and frames.dtype == np.uint8
        if not fits or numbers.shape != wanted or numbers.dtype != np.int64:
            raise OptionError(
                f"obs has frames {frames.shape} and numbers {numbers.shape}",
                f"this buffer stores frames {self._column.shape[1:]} and numbers {wanted}",
                "load a state that state_dict() returned",
            )
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(frames):
            raise OptionError(
                f"obs has the number of a frame from {numbers.min()} to {numbers.max()}",
                f"there are {len(frames)} frames",
                "load a state that state_dict() returned",
            )
        return frames, numbers

    def load(self, rows: NDArray[np.int64], saved: Any) -> None:
        """Replace all contents by these rows."""
        self._begin()
        self._numbers[:] = 0  # old numbers would mark frames as no longer needed
        if not isinstance(saved, tuple):
            for row, stacks in zip(rows, saved, strict=True):
                self.put(int(row), stacks[None])
            return
        frames, numbers = saved
        if len(frames) > len(self._ring):
            self._ring = np.zeros((len(frames), self._width), np.uint8)
        self._ring[: len(frames)] = frames.reshape(len(frames), self._width)
        self._numbers[rows] = numbers
        self._next = len(frames)
        if len(rows):
            self._last = int(rows[-1])
            self._is_full = len(rows) == len(self._numbers)


def put_rows(column: Array, row: int, values: Array) -> None:
    """Write rows from `row` on, wrapping around after the last row."""
    room = len(column) - row
    if len(values) <= room:
        column[row : row + len(values)] = values
    else:
        column[row:] = values[:room]
        column[: len(values) - room] = values[room:]
