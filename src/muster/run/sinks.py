"""Receivers of metrics besides `metrics.jsonl`: TensorBoard always, Weights & Biases on request.

A sink receives every line that is written. Neither package is imported before it is needed;
TensorBoard's own writer needs no torch.
"""

import importlib
import importlib.util
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from muster.errors import OptionError
from muster.installs import install

_STAMP = re.compile(r"events\.out\.tfevents\.([0-9]{10,})\.")


class Sink(Protocol):
    """Receives metrics as they are written, in the thread that writes them."""

    def write(
        self, env_step: int, train_iter: int, seconds: float, values: Mapping[str, float]
    ) -> None:
        """Receive one line. An exception removes this sink, and does not end the run."""

    def close(self) -> None:
        """Release all resources; no more lines follow."""


class TensorBoardSink:
    """Writes an event file that TensorBoard shows; steps are env_step.

    Args:
        directory: The run's `tb`.
        purge_from: For a resumed run: TensorBoard discards what earlier files have from this step
            on.
    """

    def __init__(self, directory: Path, purge_from: int | None = None) -> None:
        self._directory = directory
        self._purge_from = purge_from
        self._file: BinaryIO | None = None
        self._records: Any = None
        self._event: Any = None
        self._summary: Any = None

    def write(
        self, env_step: int, train_iter: int, seconds: float, values: Mapping[str, float]
    ) -> None:
        """Write the values as one event and flush it."""
        if self._records is None:
            self._open()
        summary = self._summary(
            value=[
                self._summary.Value(tag=name, simple_value=float(value))
                for name, value in values.items()
            ]
        )
        self._add(self._event(wall_time=time.time(), step=env_step, summary=summary))

    def close(self) -> None:
        """Close the event file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        # Importing takes a quarter of a second, which a command without metrics should not pay.
        from tensorboard.compat.proto import (  # type: ignore[import-untyped]
            event_pb2,
            summary_pb2,
        )
        from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]
            RecordWriter,
        )

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._directory.mkdir(exist_ok=True)
        self._file = open(self._directory / self._file_name(), "xb")  # noqa: SIM115  # kept open
        self._records = RecordWriter(self._file)
        now, step = time.time(), self._purge_from or 0
        self._add(self._event(wall_time=now, step=step, file_version="brain.Event:2"))
        if self._purge_from is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._add(self._event(wall_time=now, step=step, session_log=start))

    def _file_name(self) -> str:
        # TensorBoard reads the files of a run in the order of their names. The file of a resumed
        # run must come last, even if the clock is wrong or the run is resumed within a second.
        found = [_STAMP.match(name) for name in os.listdir(self._directory)]
        stamp = max([int(time.time()), *(int(match[1]) + 1 for match in found if match)])
        return f"events.out.tfevents.{stamp:010d}.{platform.node()}.{os.getpid()}.0"

    def _add(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()


def check_wandb() -> None:
    """Raise OptionError if the package wandb is not installed, without importing it."""
    if importlib.util.find_spec("wandb") is None:
        raise _no_wandb()


def _no_wandb() -> OptionError:
    return OptionError(
        "metrics should go to Weights & Biases, but the package wandb is not installed",
        "muster does not install it, because few users need it",
        install("wandb"),
    )


class WandbSink:
    """Sends metrics to Weights & Biases.

    Args:
        directory: The run directory, for wandb's own files.
        project: The name of the project.
        config: The resolved configuration.
        options: Further arguments of `wandb.init`.

    Raises:
        OptionError: The package wandb is not installed, or does not start.
    """

    def __init__(
        self, directory: Path, project: str, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise _no_wandb() from error
        try:
            self._run: Any = wandb.init(
                project=project, dir=str(directory), config=dict(config or {}), **options
            )
        except Exception as error:
            raise OptionError(
                f"Weights & Biases does not start: {' '.join(str(error).split())}",
                "there is no account to write to, or the server cannot be reached",
                "wandb login, or WANDB_MODE=offline to send the metrics later",
            ) from error
        self._run.define_metric("*", step_metric="env_step")

    def write(
        self, env_step: int, train_iter: int, seconds: float, values: Mapping[str, float]
    ) -> None:
        """Send one line."""
        counts = {"env_step": env_step, "train_iter": train_iter, "seconds": seconds}
        self._run.log({**values, **counts})

    def close(self) -> None:
        """Send the remaining data and end the run there."""
        self._run.finish()
