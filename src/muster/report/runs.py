"""`RunSummary`: the content of one run directory; `find_runs` searches for run directories.

Files may be damaged, half-written, foreign, links or pipes: a file that cannot be read is skipped
and named in `problems`. Nothing is executed, no file is waited for, and sizes are bounded.
"""

import datetime
import json
import math
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from muster.errors import OptionError
from muster.recipes.saved import HISTORY
from muster.run import RunDirectory, RunDirectoryError, yaml_text
from muster.run.claim import RunWriter, living_writer
from muster.run.curves import Curves, read_curves
from muster.run.files import read_regular
from muster.shown import shown
from muster.spelling import nearest

Status = Literal["running", "finished", "stopped", "failed"]

RETURN = "eval/return"
"""The metric by which runs are ranked."""

_MOST_FILE = 4 << 20
_DEEPEST = 8
_MOST_FOLDERS = 100_000
_LONGEST_TEXT = 300


@dataclass(frozen=True)
class RunSummary:
    """One run, as described by its directory. Unknown values are None."""

    path: Path
    algo: str | None
    env: str | None
    seed: int | None
    options: dict[str, Any] = field(repr=False)
    """All of `config.yaml` except algorithm, environment, seed and history."""
    status: Status
    """`running`: a process writes to it. `finished`: it reached a limit or its target. `stopped`: a
    signal, or the program of its `Trainer`, ended it cleanly. `failed`: it has no result, and no
    process works on it."""
    stopped_by: str | None
    env_steps: int | None
    seconds: float | None
    best_return: float | None
    """The highest mean return of its evaluations."""
    final_return: float | None
    """The mean return of its last evaluation."""
    started: str | None
    """When it was started, or last resumed, in the time of its machine."""
    problems: tuple[str, ...] = ()
    """The files that could not be read, with reasons."""
    result: dict[str, Any] = field(default_factory=dict, repr=False)
    """All of `result.json`."""
    machine: dict[str, Any] = field(default_factory=dict, repr=False)
    """All of `env.json`."""
    writer: RunWriter | None = None
    """The process that currently writes to it."""

    @property
    def name(self) -> str:
        """Its path, relative to the current folder."""
        return shown(self.path)

    def curves(self) -> Curves:
        """Read its metrics; empty if there is no readable file."""
        try:
            return read_curves(self.path / "metrics.jsonl")
        except OSError:
            return Curves({}, {})

    def commands(self) -> list[str]:
        """Return the commands that started and resumed it."""
        data, _ = _read(self.path / "command.txt")
        return data.decode("utf-8", "replace").splitlines()

    def as_json(self) -> dict[str, Any]:
        """Return the fields that a list of runs shows, with its options."""
        return {
            "run": str(self.path),
            "algo": self.algo,
            "env": self.env,
            "seed": self.seed,
            "status": self.status,
            "stopped_by": self.stopped_by,
            "env_steps": self.env_steps,
            "seconds": self.seconds,
            "best_return": self.best_return,
            "final_return": self.final_return,
            "started": self.started,
            "problems": list(self.problems),
            "options": plain(self.options),
        }


def read_run(path: str | Path) -> RunSummary:
    """Read one run, by its directory or by a checkpoint in it.

    Raises:
        RunDirectoryError: There is no run.
        OptionError: The path is invalid.
    """
    return _read_run(RunDirectory.open(path).path)


def find_runs(*places: str | Path) -> list[RunSummary]:
    """Read the given runs, and all runs in the given folders; the newest is last.

    Args:
        *places: Run directories, checkpoints in them, or folders with runs somewhere below.
            Links below a folder are not followed.

    Raises:
        OptionError: One of them does not exist, or contains no run.
    """
    found: dict[Path, RunSummary] = {}
    for place in places:
        for path in _paths(place):
            real = path.resolve()
            if real not in found:
                found[real] = _read_run(path)
    return sorted(found.values(), key=lambda run: (_when(run), str(run.path)))


def _paths(place: str | Path) -> Iterable[Path]:
    try:
        return [RunDirectory.open(place).path]
    except RunDirectoryError as error:
        folder = Path(os.path.abspath(place))
        if not folder.is_dir():
            raise _not_there(folder, error) from None
    below = list(_walk(folder))
    if not below:
        raise OptionError(
            f"there is no run in {shown(folder)}",
            "no folder below it has a config.yaml of a run",
            "muster train ppo CartPole-v1",
        )
    return below


def _not_there(folder: Path, error: RunDirectoryError) -> OptionError:
    try:
        beside = [each.name for each in os.scandir(folder.parent) if each.is_dir()]
    except OSError:
        beside = []
    near = nearest(folder.name, beside)
    fix = shlex.quote(shown(folder.parent / near)) if near else "muster train ppo CartPole-v1"
    return OptionError(error.args[0], "there is no such folder", fix)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the runs below a folder; folders that cannot be read are skipped."""
    waiting = [(folder, 0)]
    seen = 0
    while waiting and seen < _MOST_FOLDERS:
        place, depth = waiting.pop()
        seen += 1
        try:
            with os.scandir(place) as entries:
                inside = list(entries)
            names = {each.name for each in inside if each.is_file(follow_symlinks=False)}
            folders = [Path(each.path) for each in inside if each.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        if names & {"config.yaml", "env.json"}:
            yield place
        elif depth < _DEEPEST:
            waiting += [(each, depth + 1) for each in sorted(folders, reverse=True)]


def _read_run(path: Path) -> RunSummary:
    problems: list[str] = []
    config = _config(path, problems)
    result = _json(path / "result.json", problems)
    machine = _json(path / "env.json", problems)
    writer = living_writer(path)
    returns, last_step, last_seconds = _evaluations(path, problems)
    final = number(result.get("eval_return_mean"))
    if final is None and returns:
        final = returns[-1]
    if final is not None and result:
        returns.append(final)
    return RunSummary(
        path=path,
        algo=text(config.get("algo", result.get("algo"))),
        env=text(config.get("env", result.get("env"))),
        seed=whole(config.get("seed", result.get("seed"))),
        options={key: value for key, value in config.items() if key not in _APART},
        status=_status(result, writer),
        stopped_by=text(result.get("stopped_by")),
        env_steps=whole(result.get("env_steps"), last_step),
        seconds=number(result.get("seconds"), last_seconds),
        best_return=max(returns, default=None),
        final_return=final,
        started=text(machine.get("started")),
        problems=tuple(problems),
        result=result,
        machine=machine,
        writer=writer,
    )


_APART = ("algo", "env", "seed", HISTORY)


def _status(result: dict[str, Any], writer: RunWriter | None) -> Status:
    if writer is not None:
        return "running"
    if not result:
        return "failed"
    return "stopped" if result.get("stopped_by") in ("signal", "closed") else "finished"


def _evaluations(path: Path, problems: list[str]) -> tuple[list[float], int | None, float | None]:
    """Return the returns of all evaluations, and the step and seconds of the last line."""
    try:
        curves = read_curves(path / "metrics.jsonl", only=RETURN)
    except FileNotFoundError:
        return [], None, None
    except OSError as error:
        problems.append(f"metrics.jsonl: {error.strerror}")
        return [], None, None
    if curves.passed_over:
        problems.append(f"metrics.jsonl: {curves.passed_over} lines cannot be read")
    if curves.partial:
        problems.append("metrics.jsonl: too large, so only parts of it are read")
    steps = curves.axes["env_step"]
    if not len(steps):
        return [], None, None
    found = curves.metrics.get(RETURN)
    values = [] if found is None else [float(each) for each in found.value]
    return values, int(steps.max()), number(float(curves.axes["seconds"][-1]))


def _config(path: Path, problems: list[str]) -> dict[str, Any]:
    data, problem = _read(path / "config.yaml")
    try:
        return yaml_text.load(data.decode()) if problem is None else _lacking(problem, problems)
    except UnicodeDecodeError:
        return _lacking("config.yaml: not a text file", problems)
    except OptionError as error:
        return _lacking(f"config.yaml: {error.args[0]}", problems)


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    data, problem = _read(path)
    if problem is not None:
        missing = not os.path.lexists(path)  # a run in progress has no result yet
        return {} if missing else _lacking(problem, problems)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    return content if type(content) is dict else _lacking(f"{path.name}: not JSON", problems)


def _lacking(problem: str, problems: list[str]) -> dict[str, Any]:
    problems.append(problem)
    return {}


def _read(path: Path) -> tuple[bytes, str | None]:
    """Return the content of a file, or empty bytes and the problem."""
    try:
        return read_regular(path, _MOST_FILE, links=False), None
    except OSError as error:
        return b"", f"{path.name}: {error.strerror}"


def plain(value: Any) -> Any:
    """Return a value in a form that JSON can write: infinity becomes a string."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def text(value: Any) -> str | None:
    """Return a value from a file if it is text, cut to a length that can be shown."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else None


def whole(value: Any, otherwise: int | None = None) -> int | None:
    """Return a value from a file if it is an integer that an array can hold."""
    return value if type(value) is int and abs(value) < 2**63 else otherwise


def number(value: Any, otherwise: float | None = None) -> float | None:
    """Return a value from a file if it is a finite number."""
    if type(value) not in (int, float) or abs(value) > 1e300 or not math.isfinite(value):
        return otherwise
    return float(value)


def _when(run: RunSummary) -> float:
    try:
        return datetime.datetime.fromisoformat(run.started or "").timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return run.path.stat().st_mtime
    except OSError:
        return 0.0
