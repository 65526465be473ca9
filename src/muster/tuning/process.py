"""`TrialProcess`: one trial as a process of `muster train`, and its outcome."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import MusterError
from muster.recipes.own_modules import is_code
from muster.report.runs import read_run
from muster.run import RunDirectory
from muster.run.claim import living_writer
from muster.shown import shown
from muster.tuning.space import FUNCTIONS, MAY_BE_CODE
from muster.tuning.study import Study, StudyTrial

COMMAND = (sys.executable, "-m", "muster.tuning.child")

_WRITER_LEAVES_S = 10.0
_TAIL = 16 << 10


class TrialProcess:
    """A running trial: started, or resumed if its directory has a checkpoint.

    Args:
        study: The study of the trial.
        trial: The trial.
    """

    def __init__(self, study: Study, trial: StudyTrial) -> None:
        self.trial = trial
        self.directory = study.directory(trial)
        self.began = time.monotonic()
        self.told_to_stop = False
        self._log = study.path / trial.log
        self._log.parent.mkdir(exist_ok=True)
        words = [str(os.getpid()), *_words(study, trial, self.directory)]
        with open(self._log, "ab") as log:
            # Its own process group: Ctrl-C reaches only the study, which then tells its trials.
            self._process = subprocess.Popen(
                [*COMMAND, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.fd = os.pidfd_open(self._process.pid)

    def stop(self) -> None:
        """Ask the process to save and exit."""
        if not self.told_to_stop:
            self.told_to_stop = True
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, and wait until it has exited."""
        self._process.kill()
        self.close()

    def has_ended(self) -> bool:
        """Whether the process has exited."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Reap the process and close its file descriptor."""
        self._process.wait()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def failure(self) -> str | None:
        """Return why it failed, once it has ended; None if it did not fail."""
        code = self._process.returncode
        if code == 0 or (self.told_to_stop and code in (143, -signal.SIGTERM)):
            return None
        if code < 0:
            return f"killed by {signal.Signals(-code).name}; see {shown(self._log)}"
        return f"{self._said() or f'exit code {code}'}; see {shown(self._log)}"

    def _said(self) -> str | None:
        """Return the last error message in its log."""
        with open(self._log, "rb") as file:
            file.seek(max(0, self._log.stat().st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
        said = [line.removeprefix("muster: ") for line in lines if line.startswith("muster: ")]
        return said[-1][:200] if said else None


def wait_for_any(processes: Sequence[TrialProcess], seconds: float) -> None:
    """Wait until one of them ends, at most this many seconds."""
    select.select([each.fd for each in processes], [], [], seconds)


def outcome(directory: Path, goal: int | None) -> tuple[float | None, int | None, bool]:
    """Return the return and the steps of a run, and whether the run finished.

    Args:
        directory: The run directory.
        goal: The step that the run should reach. A result of fewer steps is that of the generation
            before.
    """
    try:
        run = read_run(directory)
    except MusterError:
        return None, None, False
    is_old = goal is not None and run.stopped_by == "steps" and (run.env_steps or 0) < goal
    return run.final_return, run.env_steps, run.status == "finished" and not is_old


def _words(study: Study, trial: StudyTrial, directory: Path) -> Iterator[str]:
    """Yield the command line of a trial, and prepare its directory."""
    record = study.record
    options = {**record.options, **trial.settings}
    piece = {} if record.goal is None or trial.repeat else {"env_steps": record.goal}
    yield from ("train", record.algo, record.env)
    if _can_be_resumed(directory):
        code = {name: options.get(name) for name in (*MAY_BE_CODE, *FUNCTIONS)}
        given = {name: value for name, value in code.items() if value and _names_code(value)}
        changed = {**trial.settings, **piece} if piece else {}
        place = {"run_dir": str(directory), "resume": True, "quiet": True}
        yield from as_words({**given, **changed, **place})
        return
    if directory.exists():
        shutil.rmtree(directory)  # a run that ended before its first checkpoint
    directory.parent.mkdir(exist_ok=True)
    own = {"seed": trial.seed, "run_dir": str(directory), "quiet": True}
    yield from as_words({**options, **piece, **own})


def _names_code(value: Any) -> bool:
    return any(is_code(each) for each in (value if isinstance(value, tuple) else (value,)))


def _can_be_resumed(directory: Path) -> bool:
    """Whether the directory is a run with a checkpoint, and no process writes to it."""
    deadline = time.monotonic() + _WRITER_LEAVES_S
    while living_writer(directory) is not None and time.monotonic() < deadline:
        time.sleep(0.02)  # a process of a killed study, which the kernel is ending
    try:
        return RunDirectory.open(directory).checkpoints.last() is not None
    except MusterError:
        return False


def as_words(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options as they are typed."""
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, tuple):
            yield f"--{flag}"
            yield from map(str, value)
        else:
            yield f"--{flag}={value}"
