"""`RunDirectory`: the directory of one run, with one writer at a time.

    runs/<env>/<algo>/<date-time>-<seed>/
        config.yaml  command.txt  env.json  metrics.jsonl  result.json  .lock  .writer.json
        logs/  tb/  checkpoints/

`create` makes one, and never writes into another run. `open` opens an existing one, for reading
only or, with `writable=True`, to resume it: this claims it (`muster.run.claim`) and removes
leftovers of dead writers, nothing else, so that a run that cannot be resumed stays unchanged.
`note_start` comes after that. Every file here is written atomically, and read only if it is a
regular file.
"""

import json
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from muster.run import config_io
from muster.run.best import FOLDER, BestCheckpoint
from muster.run.checkpoint import CheckpointStore
from muster.run.claim import LOCK, Claim, check_claim, claim_of
from muster.run.errors import RunDirectoryError
from muster.run.files import read_regular, write_atomic
from muster.run.machine import describe_machine
from muster.run.names import checked_path
from muster.run.new_run import (
    CHECKPOINTS,
    FOLDERS,
    content_of,
    make_default,
    make_given,
    not_made,
    taken,
)
from muster.run.reading import NAME
from muster.spelling import nearest

START = "start"
"""Folder of the weights that a run began with, if another run's went into them."""
_INNER = (FOLDER, START)
"""Folders among the checkpoints that hold checkpoints themselves."""
_MAX_READ = 16 << 20


class RunDirectory:
    """An existing run directory. Use `create` or `open`, not the constructor.

    Attributes:
        path: The directory, absolute.
        checkpoint: The checkpoint that was passed to `open`, or None if the run was passed.
        checkpoints: The store of its regular checkpoints, from which the run resumes.
        best: The weights of the best evaluation, and their score.
        logs: Directory of the nodes' logs.
        tb: Directory of TensorBoard's files.
        metrics: The file `metrics.jsonl`.
    """

    def __init__(self, path: Path, claim: Claim | None, checkpoint: Path | None = None) -> None:
        self.path = path
        self.checkpoint = checkpoint
        self.checkpoints = CheckpointStore(path / CHECKPOINTS, check_writable=self.check_writable)
        self.best = BestCheckpoint(path / CHECKPOINTS, check_writable=self.check_writable)
        self.logs = path / "logs"
        self.tb = path / "tb"
        self.metrics = path / "metrics.jsonl"
        self._claim = claim
        self._joined: str | None = None

    @classmethod
    def create(
        cls,
        path: str | Path | None,
        env_id: str,
        algo: str,
        seed: int,
        *,
        root: str | Path = "runs",
        argv: Sequence[str] | None = None,
    ) -> "RunDirectory":
        """Make the directory of a new run and claim it.

        Args:
            path: The directory itself; None for one under `root`, named after the other arguments.
            env_id: For the name.
            algo: For the name.
            seed: For the name.
            root: Parent directory of runs without a path.
            argv: The command for `command.txt`; default `sys.argv`.

        Raises:
            RunDirectoryError: `path` is not empty, or cannot be created.
            RunLockedError: Another process is writing there.
            OptionError: The path is invalid.
        """
        if path is None:
            place = make_default(Path(os.path.abspath(root)), env_id, algo, seed)
        else:
            place = checked_path(path)
            make_given(place)
        claim = _claimed(place)
        try:
            if content_of(place):  # another process was faster
                raise taken(place)
            run = cls(place, claim)
            run.note_start(argv)
        except BaseException:
            claim.release()
            raise
        return run

    @classmethod
    def open(cls, path: str | Path, *, writable: bool = False) -> "RunDirectory":
        """Open an existing run, by its directory or that of one of its checkpoints.

        Args:
            path: The run directory, or a checkpoint in it: `<run>/checkpoints/step-<n>`, or
                `<run>/checkpoints/best/step-<n>`.
            writable: Claim the run, to resume it; otherwise it is only read.

        Raises:
            RunDirectoryError: There is no run at `path`.
            RunLockedError: Another process is writing there, and `writable` is True.
        """
        given = checked_path(path)
        checkpoint: Path | None = None
        place = given
        if NAME.fullmatch(given.name):
            folder = given.parent.parent if given.parent.name in _INNER else given.parent
            if folder.name == CHECKPOINTS:
                checkpoint, place = given, folder.parent
        if not _is_run(place):
            raise RunDirectoryError(
                f"there is no run in {place}",
                "it does not exist" if not place.exists() else "it has no config.yaml",
                _near(place)
                or "a directory runs/<env>/<algo>/<date-time>-<seed>, or a checkpoint in it",
            )
        if not writable:
            return cls(place, None, checkpoint)
        run = cls(place, _claimed(place), checkpoint)
        try:
            run.checkpoints.clean()
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def join(cls, path: str | Path) -> "RunDirectory":
        """Return the run of a parent process, for writing; the parent holds the claim meanwhile.

        For the node of a parallel run that writes the run's files.
        """
        run = cls(Path(path), None)
        run._joined = claim_of(run.path) or ""
        return run

    def note_start(self, argv: Sequence[str] | None = None) -> None:
        """Create the files of a new run, or record another start in the existing ones.

        Args:
            argv: The command for `command.txt`; default `sys.argv`.
        """
        for name in FOLDERS:
            folder = self.path / name
            if folder.is_symlink():
                raise RunDirectoryError(
                    f"{folder} is a symbolic link",
                    "a run writes only inside its directory",
                    f"rm {shlex.quote(str(folder))}",
                )
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise not_made(folder, error) from error
        machine = describe_machine()
        before = self._read_json("env.json")
        if before is not None:  # a run resumed elsewhere records every machine
            machine["earlier"] = [*_listed(before.pop("earlier", [])), before]
        self._write_json("env.json", machine)
        commands = self._read("command.txt") or b""
        command = shlex.join(sys.argv if argv is None else argv)
        self._write("command.txt", commands + f"{command}\n".encode("utf-8", "surrogateescape"))

    def write_config(self, config: object) -> None:
        """Write `config.yaml`: the resolved configuration, a dataclass or a dict."""
        self._write("config.yaml", config_io.to_yaml(config).encode())

    def read_config(self) -> str:
        """Return the text of `config.yaml`, for `config_io.from_yaml`."""
        file = self.path / "config.yaml"
        data = self._read(file.name)
        if data is None:
            raise _unreadable(file, "it does not exist")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _unreadable(file, str(error)) from error

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`. NaN and infinity become null there, listed under `nonfinite`."""
        self._write_json("result.json", dict(result))

    def forget_result(self) -> None:
        """Remove the `result.json` of an earlier start, before the run continues."""
        file = self.path / "result.json"
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise _unreadable(file, error.strerror or str(error)) from error

    def read_result(self) -> dict[str, Any] | None:
        """Return the content of `result.json`, or None if the run has not ended."""
        result = self._read_json("result.json")
        if result is None and os.path.lexists(self.path / "result.json"):
            raise RunDirectoryError(
                f"{self.path / 'result.json'} holds no result",
                "muster did not write the file",
                f"muster eval {shlex.quote(str(self.path))}",
            )
        return result

    def close(self) -> None:
        """Release the claim, which also ends when the process ends."""
        if self._claim is not None:
            self._claim.release()

    @property
    def writable(self) -> bool:
        """Whether this process, or the run that it is a node of, holds the claim."""
        return self._nonce is not None

    @property
    def _nonce(self) -> str | None:
        return self._joined if self._claim is None else self._claim.nonce

    def check_writable(self) -> None:
        """Raise RunDirectoryError unless this process still holds the claim."""
        nonce = self._nonce
        if nonce is None:
            raise RunDirectoryError(
                f"{self.path} was opened for reading, or is closed",
                "only the process that has claimed a run may write to it",
                "RunDirectory.open(path, writable=True)",
            )
        check_claim(self.path, nonce)

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, name: str) -> bytes | None:
        """Return the content of a file of the run; None if it does not exist."""
        file = self.path / name
        try:
            return read_regular(file, _MAX_READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(file, error.strerror or str(error)) from error

    def _read_json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a file; None if it does not exist or muster did not write it."""
        data = self._read(name)
        try:
            content = None if data is None else json.loads(data)
        except (ValueError, RecursionError):
            return None
        return content if type(content) is dict else None

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        nonfinite: dict[str, str] = {}
        plain = _plain(content, "", nonfinite)
        if nonfinite:
            plain["nonfinite"] = nonfinite
        text = json.dumps(plain, indent=2, allow_nan=False)
        self._write(name, f"{text}\n".encode())

    def _write(self, name: str, data: bytes) -> None:
        self.check_writable()
        path = self.path / name
        try:
            write_atomic(path, data)
        except OSError as error:
            raise RunDirectoryError(
                f"{path} could not be written: {error}",
                "the disk is full, or the directory is not writable",
                f"df {shlex.quote(str(self.path))}",
            ) from error


def _near(path: Path) -> str | None:
    """Return the run beside a path that was probably meant."""
    try:
        runs = [each.name for each in path.parent.iterdir() if _is_run(each)]
    except OSError:
        return None
    near = nearest(path.name, runs)
    return None if near is None else f"{path.parent / near}, which exists"


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or (path / "env.json").is_file()


def _claimed(path: Path) -> Claim:
    claim = Claim(path)
    try:
        claim.acquire()
    except OSError as error:
        raise not_made(path / LOCK, error) from error
    return claim


def _unreadable(file: Path, why: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{file} cannot be read", why, f"ls -l {shlex.quote(str(file))}, and move it away"
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _plain(value: Any, path: str, nonfinite: dict[str, str]) -> Any:
    """Convert a result to JSON values: NumPy numbers, paths, NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {
            str(key): _plain(each, f"{path}/{key}" if path else str(key), nonfinite)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(each, f"{path}/{i}", nonfinite) for i, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite[path] = str(value)
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
