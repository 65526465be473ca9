"""`Study`: the directory of a study, and `study.json`, from which it resumes.

    tunes/<env>/<algo>/<date-time>/
        study.json  best.yaml  table.txt  .lock  .writer.json
        trials/003/  confirm/003-1/      run directories; trials/003-2/: a copy of another one
        logs/                            the output of each trial

`study.json` is plain data, written atomically after each change: a study that is killed at any
moment knows which trials have finished. One process writes it at a time.
"""

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from muster.run.claim import Claim
from muster.run.errors import RunLockedError
from muster.run.files import make_directories, read_regular, write_atomic
from muster.run.names import checked_path, safe_name
from muster.tuning.errors import StudyError
from muster.tuning.space import Choices, Space, Span

FORMAT = 1
FILE = "study.json"
TrialStatus = Literal["waiting", "running", "finished", "pruned", "failed"]
Search = Literal["grid", "random", "tpe", "seeds"]
"""How trials differ; `seeds` tries nothing: all have the same settings."""
Scheduler = Literal["none", "median", "asha", "pbt"]

_MOST_FILE = 64 << 20


@dataclass
class Takeover:
    """A trial continues as a copy of another one (see `muster.tuning.population`)."""

    generation: int
    """The first generation that the copy trains in."""
    source: int
    """The number of the trial that was copied."""
    settings: dict[str, Any]
    """The options of the copy."""


@dataclass
class StudyTrial:
    """One run of a study."""

    number: int
    """From 0, in the order in which trials were made; a confirmation has that of its trial."""
    settings: dict[str, Any]
    """The options that are tried; of a trial that has copied others, the newest."""
    seed: int
    repeat: int = 0
    """0 for a trial of the search; 1 or more for its confirmation runs."""
    status: TrialStatus = "waiting"
    score: float | None = None
    """The mean return of its last evaluation; None until it has finished or was pruned."""
    env_steps: int | None = None
    problem: str | None = None
    """Why it failed."""
    sampled_as: int | None = None
    """Its number in Optuna's own storage."""
    takeovers: list[Takeover] = field(default_factory=list)
    """The copies that it has continued as, in order."""

    @property
    def name(self) -> str:
        """The trial's name in messages."""
        if not self.settings:  # only seeds differ
            return f"seed {self.seed}"
        return f"trial {self.number}" + (f", seed {self.repeat}" if self.repeat else "")

    @property
    def place(self) -> str:
        """Its run directory, relative to that of the study."""
        if self.repeat:
            return f"confirm/{self.number:03}-{self.repeat}"
        copy = f"-{self.takeovers[-1].generation}" if self.takeovers else ""
        return f"trials/{self.number:03}{copy}"

    @property
    def log(self) -> str:
        """The file of its output, relative to the directory of the study."""
        return f"logs/{self.place.replace('/', '-')}.log"

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.status in ("finished", "pruned", "failed")


@dataclass
class StudyRecord:
    """The content of `study.json`."""

    algo: str
    env: str
    options: dict[str, Any]
    """Options that all trials share."""
    search: Search
    space: dict[str, Any]
    """By option, `Choices` or a `Span`: see `muster.tuning.space`."""
    trials_wanted: int
    seed: int
    confirm: int
    scheduler: Scheduler
    trials: list[StudyTrial] = field(default_factory=list)
    generations: int = 1
    """The pieces that the steps of a trial are cut into."""
    generation: int = 0
    """The piece that is trained now."""
    format: int = FORMAT

    @property
    def goal(self) -> int | None:
        """The step at which this generation ends; None if trials are not cut into pieces."""
        if self.scheduler != "pbt":
            return None
        steps: int = self.options["env_steps"]
        return steps * (self.generation + 1) // self.generations


class Study:
    """A study that this process has claimed. Made by `create` or `open`.

    Attributes:
        path: Its directory, absolute.
        record: The content of `study.json`.
    """

    def __init__(self, path: Path, record: StudyRecord, claim: Claim) -> None:
        self.path = path
        self.record = record
        self._claim = claim

    @classmethod
    def create(cls, out: str | Path | None, record: StudyRecord) -> "Study":
        """Make the directory of a new study.

        Args:
            out: The directory, which must not exist or be empty; None for one under `tunes/`.
            record: The study to run.
        """
        if out is None:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            parent = Path("tunes", safe_name(record.env), safe_name(record.algo))
            path = _free(Path(os.path.abspath(parent)), stamp)
        else:
            path = check_free(out)
        try:
            make_directories(path)
        except OSError as error:
            raise _no_place(path, error.strerror or str(error)) from error
        study = cls(path, record, _claimed(path))
        study.save()
        return study

    @classmethod
    def open(cls, path: str | Path) -> "Study":
        """Claim a study to resume it.

        Raises:
            StudyError: There is none, or its file is damaged; nothing is changed.
            RunLockedError: Another process works on it.
        """
        place = checked_path(path)
        read_study(place)  # rejects other directories before a lock is written there
        claim = _claimed(place)
        try:
            return cls(place, read_study(place), claim)
        except BaseException:
            claim.release()
            raise

    def save(self) -> None:
        """Write `study.json`."""
        data = msgspec.json.encode({**asdict(self.record), "space": _tagged(self.record.space)})
        write_atomic(self.path / FILE, msgspec.json.format(data, indent=1) + b"\n")

    def write(self, name: str, text: str) -> None:
        """Write another file of the study."""
        write_atomic(self.path / name, text.encode())

    def directory(self, trial: StudyTrial) -> Path:
        """Return the run directory of a trial."""
        return self.path / trial.place

    def __enter__(self) -> "Study":
        return self

    def __exit__(self, *exception: object) -> None:
        self._claim.release()


def read_study(path: Path) -> StudyRecord:
    """Return the content of a study's file; raise StudyError if it is invalid."""
    file = path / FILE
    try:
        data = read_regular(file, _MOST_FILE, links=False)
    except FileNotFoundError:
        raise StudyError(
            f"there is no study in {path}",
            f"it has no {FILE}" if path.is_dir() else "it does not exist",
            "muster tune --resume tunes/<env>/<algo>/<date-time>",
        ) from None
    except OSError as error:
        raise _damaged(file, error.strerror or str(error)) from error
    try:
        record = msgspec.json.decode(data, type=StudyRecord)
        record.space = _untagged(record.space)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as error:
        raise _damaged(file, " ".join(str(error).split())[:200]) from error
    if record.format != FORMAT:
        raise _damaged(file, f"it has format {record.format}, and this muster reads {FORMAT}")
    keys = {(trial.number, trial.repeat) for trial in record.trials}
    low = min((min(key) for key in keys), default=0)
    if len(keys) < len(record.trials) or low < 0:
        raise _damaged(file, "a trial appears twice, or has a number below 0")
    for trial in record.trials:
        trial.settings = {name: as_tuple(value) for name, value in trial.settings.items()}
        for each in trial.takeovers:
            each.settings = {name: as_tuple(value) for name, value in each.settings.items()}
    record.options = {name: as_tuple(value) for name, value in record.options.items()}
    return record


def check_free(
    out: str | Path, option: str = "--out", resume: str = "muster tune --resume"
) -> Path:
    """Return the absolute path if a study can begin there; raise otherwise. Creates nothing.

    Args:
        out: The directory.
        option: The option that names it, for messages.
        resume: The command that continues a study, for messages.
    """
    path = checked_path(out)
    if (path / FILE).exists():
        raise StudyError(
            f"there is a study in {path}",
            "a new one does not write into its directory",
            f"{resume} {path}, or another {option}",
        )
    try:
        taken = path.is_symlink() or (path.exists() and any(path.iterdir()))
    except OSError as error:
        raise _no_place(path, error.strerror or str(error), option) from error
    if taken:
        raise _no_place(path, "it is a link, or not empty", option)
    return path


def as_tuple(value: Any) -> Any:
    """Return a list from a file as the tuple that it was."""
    return tuple(value) if isinstance(value, list) else value


def _tagged(space: Space) -> dict[str, Any]:
    return {
        name: {"values": list(each.values)} if isinstance(each, Choices) else asdict(each)
        for name, each in space.items()
    }


def _untagged(plain: dict[str, Any]) -> Space:
    found: Space = {}
    for name, each in plain.items():
        if "values" in each:
            found[name] = Choices(tuple(as_tuple(value) for value in each["values"]))
        else:
            found[name] = msgspec.convert(each, Span, strict=True)
    return found


def _free(parent: Path, stem: str) -> Path:
    number = 1
    while os.path.lexists(parent / (stem if number == 1 else f"{stem}-{number}")):
        number += 1
    return parent / (stem if number == 1 else f"{stem}-{number}")


def _claimed(path: Path) -> Claim:
    claim = Claim(path)
    try:
        claim.acquire()
    except RunLockedError as error:
        raise RunLockedError(
            error.args[0],
            "a study has one process that starts its trials",
            "wait for that process, or stop it: it saves, and can be resumed",
            pid=error.pid,
        ) from None
    except OSError as error:
        raise _no_place(path, error.strerror or str(error)) from error
    return claim


def _no_place(path: Path, why: str, option: str = "--out") -> StudyError:
    return StudyError(f"{path} cannot be the directory of a study", why, f"another {option}")


def _damaged(file: Path, why: str) -> StudyError:
    return StudyError(
        f"{file} is damaged",
        why,
        f"the runs are intact: muster runs {file.parent}",
    )
