"""`read_curves`: the content of `metrics.jsonl` as arrays; robust against any file content.

A line that is not valid metrics is skipped and counted; a last line that is still being written is
skipped. Of a file that is too large to read whole, evenly spread sections are read.
"""

import array
import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

AXES = ("env_step", "train_iter", "seconds")
"""Keys of every line, over which a curve may be drawn."""

MOST_BYTES = 64 << 20
"""Maximum size of a file that is read whole."""
_STRETCHES = 64
_LONGEST_LINE = 1 << 20
_MOST_METRICS = 500
_LONGEST_NAME = 200
_MOST_STEP = 2**63 - 1


@dataclass
class Curve:
    """One metric, at the lines that contain it."""

    env_step: NDArray[np.int64]
    train_iter: NDArray[np.int64]
    seconds: NDArray[np.float64]
    value: NDArray[np.float64]
    line: NDArray[np.int64] = field(repr=False)
    """The index, among the lines that were read, of the line of each value."""


@dataclass
class Curves:
    """All metrics of a run.

    Attributes:
        metrics: By name, in order of first appearance.
        axes: `env_step`, `train_iter` and `seconds` of each line.
        passed_over: Number of lines that could not be read.
        partial: Whether the file was too large to be read whole.
    """

    metrics: dict[str, Curve]
    axes: dict[str, NDArray[Any]]
    passed_over: int = 0
    partial: bool = False

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return one array for each axis and metric, each with one element per line that was read.

        A metric is NaN at lines that do not contain it. `pandas.DataFrame` accepts the result.
        """
        found = dict(self.axes)
        for name, curve in self.metrics.items():
            column = np.full(len(self.axes["env_step"]), np.nan)
            column[curve.line] = curve.value
            found[name] = column
        return found


def read_curves(path: Path, only: str | None = None, most_bytes: int = MOST_BYTES) -> Curves:
    """Read a file of metrics.

    Args:
        path: The file `metrics.jsonl` of a run.
        only: A metric. Other lines are skipped, except the last, which is much faster.
        most_bytes: Maximum number of bytes to read.

    Raises:
        OSError: The file does not exist, cannot be read, or is not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(22, "it is not a regular file", str(path))
        reader = _CurveReader()
        partial = status.st_size > most_bytes
        lines = _stretches(file, status.st_size, most_bytes) if partial else _lines(file)
        for line in lines if only is None else _with(json.dumps(only).encode(), lines):
            reader.take(line)
    return reader.curves(partial)


def _lines(file: BinaryIO, until: int | None = None) -> Iterator[bytes]:
    """Yield the lines; a piece of an overlong line counts as an unreadable line."""
    while line := file.readline(_LONGEST_LINE):
        yield line
        if until is not None and file.tell() >= until:
            return


def _with(name: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines that contain a name, and the last complete line."""
    last = b""
    for line in lines:
        if name in line:
            last = b""
            yield line
        elif line.endswith(b"\n"):
            last = line
    if last:
        yield last


def _stretches(file: BinaryIO, size: int, most_bytes: int) -> Iterator[bytes]:
    """Yield whole lines from the beginning, the end, and places in between."""
    length = most_bytes // _STRETCHES
    for number in range(_STRETCHES):
        start = (size - length) * number // (_STRETCHES - 1)
        file.seek(start)
        lines = _lines(file, start + length)
        if number:
            next(lines, b"")  # probably the rest of a line that began earlier
        yield from lines


class _CurveReader:
    """Collects the values of lines compactly."""

    def __init__(self) -> None:
        self._steps = array.array("q")
        self._iterations = array.array("q")
        self._seconds = array.array("d")
        self._metrics: dict[str, tuple[array.array[int], array.array[float]]] = {}
        self._passed_over = 0

    def take(self, line: bytes) -> None:
        """Add a line, if it is a valid line of metrics."""
        if not line.endswith(b"\n"):  # it is still being written, or too long
            self._passed_over += len(line) == _LONGEST_LINE
            return
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if type(content) is not dict or not all(_is_count(content.get(key)) for key in AXES[:2]):
            self._passed_over += 1
            return
        seconds = _number(content.get("seconds"))
        number = len(self._steps)
        self._steps.append(content["env_step"])
        self._iterations.append(content["train_iter"])
        self._seconds.append(seconds)
        for name, value in content.items():
            found = _number(value)
            if name in AXES or math.isnan(found) or not 0 < len(name) <= _LONGEST_NAME:
                continue
            if name not in self._metrics:
                if len(self._metrics) == _MOST_METRICS:
                    continue
                self._metrics[name] = (array.array("q"), array.array("d"))
            lines, values = self._metrics[name]
            lines.append(number)
            values.append(found)

    def curves(self, partial: bool) -> Curves:
        """Return the collected curves."""
        step, train_iter = np.array(self._steps), np.array(self._iterations)
        seconds = np.array(self._seconds)
        metrics = {}
        for name, (lines, values) in self._metrics.items():
            at = np.array(lines)
            metrics[name] = Curve(step[at], train_iter[at], seconds[at], np.array(values), at)
        axes = dict(zip(AXES, (step, train_iter, seconds), strict=True))
        return Curves(metrics, axes, self._passed_over, partial)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_STEP


def _number(value: Any) -> float:
    """Return a finite number as a float, and NaN for any other value."""
    if type(value) not in (int, float):
        return math.nan
    try:
        found = float(value)
    except OverflowError:
        return math.nan
    return found if math.isfinite(found) else math.nan
