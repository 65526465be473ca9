"""`RunDirectory`: the place of one run, with one writer at a time.

    runs/<env>/<algo>/<date-time>-<seed>/
        config.yaml  command.txt  env.json  metrics.jsonl  result.json  .lock
        logs/  tb/  checkpoints/

`create` makes one and refuses to write into another run; `open` finds one again, to go on with it
(`writable=True`, which takes the lock) or only to read. Every file here is written atomically.
"""

import contextlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from muster.errors import OptionError
from muster.run import config_io
from muster.run.best import FOLDER, BestCheckpoint
from muster.run.checkpoint import CheckpointStore
from muster.run.errors import RunDirectoryError
from muster.run.files import write_atomic
from muster.run.lock import FileLock
from muster.run.machine import describe_machine
from muster.run.names import check_inside, checked_path, safe_name
from muster.run.reading import NAME

_CHECKPOINTS = "checkpoints"
_FOLDERS = ("logs", "tb", _CHECKPOINTS)
_LOCK = ".lock"
_MAX_READ = 16 << 20


class RunDirectory:
    """A run directory that exists. Made by `create` or `open`, not by hand.

    Attributes:
        path: The directory, absolute.
        checkpoint: The checkpoint that `open` was given, or None if it was given the run.
        checkpoints: The store of its regular checkpoints, from which a run is resumed.
        best: The weights of the best evaluation, and their score.
        logs: Where the nodes' logs go.
        tb: Where TensorBoard's files go.
        metrics: The file `metrics.jsonl`.
    """

    def __init__(self, path: Path, lock: FileLock | None, checkpoint: Path | None = None) -> None:
        self.path = path
        self.checkpoint = checkpoint
        self.checkpoints = CheckpointStore(path / _CHECKPOINTS, check_writable=self.check_writable)
        self.best = BestCheckpoint(path / _CHECKPOINTS, check_writable=self.check_writable)
        self.logs = path / "logs"
        self.tb = path / "tb"
        self.metrics = path / "metrics.jsonl"
        self._lock = lock
        self._joined = False

    @classmethod
    def create(
        cls,
        path: str | Path | None,
        env_id: str,
        algo: str,
        seed: int,
        *,
        root: str | Path = "runs",
        resume: bool = False,
        argv: Sequence[str] | None = None,
    ) -> "RunDirectory":
        """Make the directory of a new run and lock it.

        Args:
            path: The directory itself; None for one under `root`, named after the other arguments.
            env_id: For the name.
            algo: For the name.
            seed: For the name.
            root: Where runs without a path go.
            resume: Go on with the run that is at `path`; that there is none is an error.
            argv: The command for `command.txt`; `sys.argv` if it is not given.

        Raises:
            RunDirectoryError: There is something at `path` already, or it cannot be made.
            RunLockedError: Another process is writing there.
            OptionError: The path is none to write to.
        """
        if path is None:
            if resume:
                raise OptionError(
                    "there is nothing to resume",
                    "a run that is gone on with is given by its directory",
                    "--resume --run-dir runs/<env>/<algo>/<date-time>-<seed>",
                )
            place = _make_default(Path(os.path.abspath(root)), env_id, algo, seed)
        elif resume:
            return cls.open(path, writable=True, argv=argv)
        else:
            place = checked_path(path)
            _make_given(place)
        lock = _locked(place)
        try:
            if _content(place):  # somebody was faster
                raise _taken(place)
            run = cls(place, lock)
            run._prepare(argv)
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def open(
        cls, path: str | Path, *, writable: bool = False, argv: Sequence[str] | None = None
    ) -> "RunDirectory":
        """Find a run again, by its directory or by that of one of its checkpoints.

        Args:
            path: The run directory, or a checkpoint in it: `<run>/checkpoints/step-<n>`, or
                `<run>/checkpoints/best/step-<n>`.
            writable: Take the lock, to go on with the run; otherwise nothing is written.
            argv: The command that is added to `command.txt`; `sys.argv` if it is not given.

        Raises:
            RunDirectoryError: There is no run.
            RunLockedError: Another process is writing there, and `writable` was asked for.
        """
        given = checked_path(path)
        checkpoint: Path | None = None
        place = given
        if NAME.fullmatch(given.name):
            folder = given.parent.parent if given.parent.name == FOLDER else given.parent
            if folder.name == _CHECKPOINTS:
                checkpoint, place = given, folder.parent
        if not _is_run(place):
            raise RunDirectoryError(
                f"there is no run in {place}",
                "it is not there" if not place.exists() else "it has no config.yaml",
                "a directory runs/<env>/<algo>/<date-time>-<seed>, or a checkpoint in it",
            )
        if not writable:
            return cls(place, None, checkpoint)
        lock = _locked(place)
        try:
            run = cls(place, lock, checkpoint)
            run._prepare(argv)
            run.checkpoints.clean()
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def join(cls, path: str | Path) -> "RunDirectory":
        """Write into the run of a parent process, which holds the lock as long as this one lives.

        For the one node of a parallel run that writes its files.
        """
        run = cls(Path(path), None)
        run._joined = True
        return run

    def _prepare(self, argv: Sequence[str] | None) -> None:
        """Make what belongs into a run, or add this start to what is there."""
        for name in _FOLDERS:
            folder = self.path / name
            if folder.is_symlink():
                raise RunDirectoryError(
                    f"{folder} is a symbolic link",
                    "what a run writes stays in its directory",
                    f"rm {shlex.quote(str(folder))}",
                )
            folder.mkdir(exist_ok=True)
        machine = describe_machine()
        with contextlib.suppress(FileNotFoundError, ValueError):
            # Of a run that was resumed elsewhere, every machine is remembered.
            before = json.loads(_read(self.path / "env.json"))
            machine["earlier"] = [*before.pop("earlier", []), before]
        self._write_json("env.json", machine)
        commands = b""
        with contextlib.suppress(FileNotFoundError):
            commands = _read(self.path / "command.txt")
        command = shlex.join(sys.argv if argv is None else argv)
        self._write("command.txt", commands + f"{command}\n".encode("utf-8", "surrogateescape"))

    def write_config(self, config: object) -> None:
        """Write `config.yaml`: the resolved configuration, a dataclass or a dict."""
        self._write("config.yaml", config_io.to_yaml(config).encode())

    def read_config(self) -> str:
        """Return the text of `config.yaml`, for `config_io.from_yaml`."""
        return _read(self.path / "config.yaml").decode()

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`. NaN and infinity are null there, and named under `nonfinite`."""
        self._write_json("result.json", dict(result))

    def forget_result(self) -> None:
        """Remove `result.json`, which was that of an earlier start, before the run goes on."""
        (self.path / "result.json").unlink(missing_ok=True)

    def read_result(self) -> dict[str, Any] | None:
        """Return the content of `result.json`, or None if the run did not come to an end."""
        try:
            result = json.loads(_read(self.path / "result.json"))
        except FileNotFoundError:
            return None
        if type(result) is not dict:
            raise RunDirectoryError(
                f"{self.path / 'result.json'} holds no result",
                "it is not what muster writes",
                f"muster eval {shlex.quote(str(self.path))}",
            )
        return result

    def close(self) -> None:
        """Give the lock back. The system does it, too, when the process ends in any way."""
        if self._lock is not None:
            self._lock.release()

    @property
    def writable(self) -> bool:
        """Whether this process, or the one that it is a node of, holds the lock of the run."""
        return self._joined or (self._lock is not None and self._lock.held)

    def check_writable(self) -> None:
        """Raise RunDirectoryError unless this process holds the lock of the run."""
        if not self.writable:
            raise RunDirectoryError(
                f"{self.path} was opened to read, or is closed",
                "a run is written to by the one process that holds its lock",
                "RunDirectory.open(path, writable=True)",
            )

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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
                "the disk is full, or the directory may not be written to",
                f"df {shlex.quote(str(self.path))}",
            ) from error


def _make_default(root: Path, env_id: str, algo: str, seed: int) -> Path:
    parent = root / safe_name(env_id) / safe_name(algo)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        check_inside(parent, root)
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_name(str(seed))}"
        number = 1
        while True:
            path = parent / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(mode=0o700)  # to be opened up by its owner, not found open
                return path
            except FileExistsError:  # another run of this second
                number += 1
    except OSError as error:
        raise _unmade(parent, error) from error


def _make_given(path: Path) -> None:
    if path.is_symlink():
        raise RunDirectoryError(
            f"{path} is a symbolic link",
            "what a run writes stays in its directory",
            f"--run-dir {shlex.quote(str(path.resolve()))}, if that is meant",
        )
    if path.is_dir() and _content(path):
        _locked(path, only_if_there=True).release()  # a run that is going on says so
        raise _taken(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.mkdir(mode=0o700)
    except OSError as error:
        raise _unmade(path, error) from error


def _unmade(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        f"{path} could not be made: {error.strerror}",
        "a file is in the way, or the directory above may not be written to",
        "--run-dir with another path",
    )


def _taken(path: Path) -> RunDirectoryError:
    quoted = shlex.quote(str(path))
    return RunDirectoryError(
        f"{path} is not empty",
        "a new run does not write over an old one, or into a directory of other things",
        f"--resume --run-dir {quoted} to go on with it, or another --run-dir",
    )


def _content(path: Path) -> list[str]:
    """What is in a directory, but for what a run leaves that is killed while it is being made."""
    names = [name for name in os.listdir(path) if name not in (_LOCK, ".env.json.partial")]
    folders = [name for name in _FOLDERS if (path / name).is_dir()]
    empty = [name for name in folders if not any((path / name).iterdir())]
    return [name for name in names if name not in empty]


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or (path / "env.json").is_file()


def _locked(path: Path, only_if_there: bool = False) -> FileLock:
    lock = FileLock(path / _LOCK)
    if not only_if_there or lock.path.exists():
        try:
            lock.acquire()
        except OSError as error:
            raise _unmade(lock.path, error) from error
    return lock


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        data = file.read(_MAX_READ + 1)
    if len(data) > _MAX_READ:
        raise RunDirectoryError(
            f"{path} has more than {_MAX_READ} bytes",
            "it is not what muster writes",
            f"ls -l {shlex.quote(str(path))}",
        )
    return data


def _plain(value: Any, path: str, nonfinite: dict[str, str]) -> Any:
    """Make JSON of what a result may hold: NumPy numbers, paths, NaN."""
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
