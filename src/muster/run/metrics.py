"""`MetricsWriter`: one line of JSON for every report, also sent to TensorBoard.

    {"env_step": 400, "train_iter": 100, "seconds": 1.93, "train/loss": 0.1, "train/q": null,
     "nonfinite": {"train/q": "nan"}}

Every line is valid JSON, and in the file when `write` returns. A run resumed from a checkpoint
drops the lines after it, so that no step appears twice and steps never decrease.
"""

import json
import math
import operator
import os
import stat
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex

from muster.errors import MusterWarning, OptionError
from muster.run.directory import RunDirectory
from muster.run.errors import RunDirectoryError
from muster.run.files import REAL, remove, write_new
from muster.run.sinks import Sink, TensorBoardSink

_OWN = ("env_step", "train_iter", "seconds", "nonfinite")
_BATCH = 1 << 20


class MetricsWriter:
    """Writes the metrics of a run; usable from any thread.

    Args:
        run: A run directory that this process may write to.
        resume_from: The env_step of the checkpoint that the run resumes from. None for a new run.
        tensorboard: Whether to write TensorBoard's files too.
        sinks: Other receivers of every line.

    Raises:
        RunDirectoryError: The run already has metrics and `resume_from` is None.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        resume_from: int | None = None,
        tensorboard: bool = True,
        sinks: Sequence[Sink] = (),
    ) -> None:
        run.check_writable()
        self.path = run.metrics
        if os.path.lexists(self.path) and not stat.S_ISREG(os.lstat(self.path).st_mode):
            raise RunDirectoryError(
                f"{self.path} is not a regular file",
                "metrics are written to a regular file",
                f"ls -l {self.path}, and move it away",
            )
        self._mutex = threading.Lock()
        self._started = time.monotonic()
        self._kept = _Kept()
        if resume_from is not None:
            self._kept = _keep_until(self.path, resume_from)
        elif self.path.exists() and self.path.stat().st_size:
            raise RunDirectoryError(
                f"{self.path} already exists",
                "a new run has no metrics yet, and a resumed run must say where its metrics "
                "continue",
                "MetricsWriter(run, resume_from=checkpoint.step)",
            )
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd: int | None = os.open(self.path, flags, 0o666)
        self._size = os.fstat(self._fd).st_size
        self._sinks: list[Sink] = list(sinks)
        if tensorboard:
            purge_from = None if resume_from is None else resume_from + 1
            self._sinks.insert(0, TensorBoardSink(run.tb, purge_from))

    def write(
        self,
        env_step: SupportsIndex,
        values: Mapping[str, float],
        *,
        train_iter: SupportsIndex | None = None,
    ) -> None:
        """Write one line.

        Args:
            env_step: Environment steps so far; must not decrease, for each metric separately.
            values: Metric name to number. NaN and infinity become null in the file, with a note.
            train_iter: Gradient updates so far; None for the same as in the previous line.

        Raises:
            OptionError: A name or a value is invalid.
            RunDirectoryError: The file cannot be written.
        """
        step = operator.index(env_step)
        numbers = {name: _number(name, value) for name, value in values.items()}
        with self._mutex:
            kept = self._kept
            self._check_step(step, numbers)
            train = kept.train_iter if train_iter is None else operator.index(train_iter)
            seconds = round(kept.seconds + time.monotonic() - self._started, 6)
            self._append(_line(step, train, seconds, numbers))
            kept.train_iter = train
            kept.steps.update(dict.fromkeys(numbers, step))
            for sink in list(self._sinks):
                self._tell(sink, step, train, seconds, numbers)

    def last_step(self, name: str) -> int | None:
        """Return the env_step of the last line with this metric; None if there is none."""
        with self._mutex:
            return self._kept.steps.get(name)

    def close(self) -> None:
        """Close the file and every sink. A second call does nothing."""
        with self._mutex:
            fd, self._fd = self._fd, None
            if fd is None:
                return
            os.close(fd)
            for sink in self._sinks:
                try:
                    sink.close()
                except Exception as error:
                    _report(sink, error)

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_step(self, step: int, names: Mapping[str, Any]) -> None:
        for name in names:
            before = self._kept.steps.get(name, 0)
            if step < before:
                raise OptionError(
                    f"{name!r} is reported for env_step {step} after env_step {before}",
                    "the steps of a metric never go back, or its curve would have two values",
                    "the env_step at which it was measured, in order",
                )

    def _append(self, line: bytes) -> None:
        if self._fd is None:
            raise RunDirectoryError(
                f"{self.path} is closed", "the writer was closed", "write before close()"
            )
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as error:
            # A partial line would corrupt the next one.
            os.ftruncate(self._fd, self._size)
            raise RunDirectoryError(
                f"{self.path} could not be written: {error}",
                "the disk or its quota is full, or the disk is lost",
                f"df {self.path.parent}",
            ) from error
        self._size += len(line)

    def _tell(
        self, sink: Sink, step: int, train: int, seconds: float, values: Mapping[str, float]
    ) -> None:
        try:
            sink.write(step, train, seconds, values)
        except Exception as error:
            self._sinks.remove(sink)
            _report(sink, error)


@dataclass
class _Kept:
    """State that a resumed run takes over from the kept lines."""

    seconds: float = 0.0
    train_iter: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0


def _line(step: int, train: int, seconds: float, numbers: Mapping[str, float]) -> bytes:
    content: dict[str, Any] = {"env_step": step, "train_iter": train, "seconds": seconds}
    nonfinite = {}
    for name, number in numbers.items():
        if math.isfinite(number):
            content[name] = number
        else:
            content[name] = None
            nonfinite[name] = str(number)
    if nonfinite:
        content["nonfinite"] = nonfinite
    return f"{json.dumps(content, allow_nan=False)}\n".encode()


def _number(name: object, value: Any) -> float:
    if not isinstance(name, str) or not name or name in _OWN:
        raise OptionError(
            f"{name!r} cannot be the name of a metric",
            f"a name must be a word, and not one of {', '.join(_OWN)}",
            '{"train/loss": 0.1}',
        )
    if hasattr(value, "item"):  # NumPy and torch numbers
        try:
            value = value.item()
        except (ValueError, RuntimeError, TypeError):
            value = None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    raise OptionError(
        f"the metric {name!r} is not a number",
        "a line holds numbers; a mean or a norm of an array is one",
        f'{{"{name}": float(...)}}',
    )


def _keep_until(path: Path, step: int) -> _Kept:
    """Drop the lines after `step`, and the partial line of a killed writer."""
    kept = _Kept()
    if not path.exists():
        return kept
    aside = path.with_name(f".{path.name}.partial")
    if os.path.lexists(aside):
        remove(aside)
    write_new(aside, _kept_lines(path, step, kept))
    REAL.rename(aside, path)
    REAL.fsync_dir(path.parent)
    if kept.unreadable:
        warnings.warn(
            f"{kept.unreadable} lines of {path} could not be read and are dropped",
            MusterWarning,
            stacklevel=3,
        )
    return kept


def _kept_lines(path: Path, step: int, kept: _Kept) -> Iterator[bytes]:
    batch = bytearray()
    with open(path, "rb") as file:
        for line in file:
            content = _parsed(line)
            if content is None:
                # Without a newline it is the last line, cut off when the writer died.
                kept.unreadable += line.endswith(b"\n")
            elif content["env_step"] <= step:
                kept.seconds = max(kept.seconds, content["seconds"])
                kept.train_iter = content["train_iter"]
                names = [name for name in content if name not in _OWN]
                kept.steps.update(dict.fromkeys(names, content["env_step"]))
                batch += line
                if len(batch) >= _BATCH:
                    yield bytes(batch)
                    batch.clear()
    yield bytes(batch)


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if type(content) is not dict:
        return None
    known = all(type(content.get(key)) is int for key in ("env_step", "train_iter"))
    return content if known and type(content.get("seconds")) in (int, float) else None


def _report(sink: Sink, error: Exception) -> None:
    warnings.warn(
        f"{type(sink).__name__} failed and gets no more metrics: {error!r}",
        MusterWarning,
        stacklevel=4,
    )
