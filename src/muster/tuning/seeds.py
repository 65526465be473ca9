"""`train_seeds`: one setting with several seeds, as many runs at a time as the cores can do."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.algos.options import check_flag, check_whole
from muster.columns import lines, short_number
from muster.errors import OptionError
from muster.recipes.algorithms import check_algorithm, load_algorithm
from muster.recipes.graceful import StopRequest
from muster.recipes.worker_range import MOST_WORKERS
from muster.report.statistics import Interval, bootstrap, iqm
from muster.run.names import safe_name
from muster.shown import shown
from muster.tuning.checks import check_same, plain, refuse_changes, refuse_if_all_failed
from muster.tuning.conduct import Conductor
from muster.tuning.errors import StudyError
from muster.tuning.plan import default_jobs, plan_seeds, settings_of
from muster.tuning.progress import StudyProgress
from muster.tuning.study import Study, check_free

ENOUGH = 3
"""Runs that an interval needs at least: of two, it would be the two returns."""


@dataclass(frozen=True)
class SeedRun:
    """The run of one seed."""

    seed: int
    status: str
    """`finished`, `failed`; or `waiting` or `running`, if the command was stopped."""
    eval_return: float | None
    env_steps: int | None
    run_dir: Path


@dataclass(frozen=True)
class SeedsResult:
    """The result of one setting with several seeds."""

    algo: str
    env: str
    path: Path
    """The directory of all runs."""
    runs: tuple[SeedRun, ...]
    stop_signal: int | None = None
    """The signal that stopped the command, if one did; `muster resume` continues the runs."""

    @property
    def returns(self) -> tuple[float, ...]:
        """The returns of the runs that have finished."""
        return tuple(
            run.eval_return
            for run in self.runs
            if run.status == "finished" and run.eval_return is not None
        )

    @property
    def iqm(self) -> float | None:
        """The interquartile mean of the returns."""
        return float(iqm(self.returns)) if self.returns else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % bootstrap interval of the interquartile mean; None with too few runs."""
        return bootstrap(iqm, self.returns) if len(self.returns) >= ENOUGH else None

    def table(self) -> str:
        """Return a line for each run, and one for all of them."""
        rows = [["seed", "return", "steps", "run directory"]]
        for run in self.runs:
            score = short_number(run.eval_return) if run.status == "finished" else run.status
            steps = "-" if run.env_steps is None else f"{run.env_steps:,}"
            rows.append([str(run.seed), score, steps, shown(run.run_dir)])
        text = f"IQM {short_number(self.iqm)}"
        if self.interval is not None:
            low, high = map(short_number, self.interval)
            text += f", 95 % interval [{low}, {high}]"
        return "\n".join([*lines(rows, right=(0, 1, 2)), f"{text}, {len(self.returns)} seeds"])


def train_seeds(
    algo: str | None = None,
    env: str | None = None,
    *,
    seeds: int = 5,
    jobs: int | None = None,
    run_dir: str | Path | None = None,
    resume: str | Path | None = None,
    config: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> SeedsResult:
    """Train with several seeds, each in its own process, and return the statistics.

    Args:
        algo: Name of the algorithm, as for `muster.train`. Not needed with `resume`.
        env: Id of the environment.
        seeds: Number of runs. Their seeds are `seed` (0 if not given) and the next ones.
        jobs: Runs at a time; None for as many as the cores can run.
        run_dir: The directory of all runs. None for a new one under `runs/`.
        resume: Such a directory, to continue runs that were interrupted. Then only `jobs` and
            `quiet` apply, and your own code, which has to be named again.
        config: A file of options for all runs.
        quiet: Print only failures.
        **options: Options for all runs, as for `muster.train`.

    Raises:
        OptionError: An argument is invalid; nothing was started.
        TrialsFailedError: Every run failed.
    """
    check_flag("quiet", quiet)
    if jobs is not None:
        check_whole("jobs", jobs, high=MOST_WORKERS)
    load_algorithm(algo)
    given = plain(options)
    if resume is not None:
        refuse_changes({"run_dir": run_dir, "config": config}, given)
        with Study.open(resume) as study:
            if study.record.search != "seeds":
                raise StudyError(
                    f"{shown(study.path)} is a study that tries several settings",
                    "it is resumed as a study: muster tries the remaining settings",
                    f"muster tune --resume {shown(study.path)}",
                )
            check_same(study.record, algo, env, given)
            return _conduct(study, jobs, quiet)
    if algo is None or env is None:
        raise OptionError(
            f"train_seeds needs an {'algorithm' if algo is None else 'environment'}",
            "only a resumed study already has one",
            'muster.train_seeds("ppo", "CartPole-v1", seeds=5)',
        )
    check_algorithm(algo, f"muster train {{}} {env} --seeds {seeds}")
    if run_dir is not None:
        check_free(run_dir, "--run-dir", "muster resume")
    record = plan_seeds(algo, env, given, seeds, config)
    with Study.create(run_dir or _new_directory(algo, env, seeds), record) as study:
        return _conduct(study, jobs, quiet)


def _conduct(study: Study, jobs: int | None, quiet: bool) -> SeedsResult:
    record, stop, progress = study.record, StopRequest(), StudyProgress(quiet)
    at_once = min(jobs or default_jobs(record), len(record.trials))
    settings = settings_of(record)
    total = settings.options.env_steps or settings.config.horizon
    with stop.listening():
        progress.say(f"{len(record.trials)} seeds, {at_once} at a time, in {shown(study.path)}")
        try:
            Conductor(study, at_once, total, stop, progress).search(None)
            if not stop.is_requested():
                refuse_if_all_failed(study)
        finally:
            progress.close()
    runs = tuple(
        SeedRun(trial.seed, trial.status, trial.score, trial.env_steps, study.directory(trial))
        for trial in record.trials
    )
    result = SeedsResult(record.algo, record.env, study.path, runs, stop.signal)
    if stop.signal is None:
        study.write("table.txt", f"{result.table()}\n")
    return result


def _new_directory(algo: str, env: str, seeds: int) -> Path:
    """Return a free directory beside those of single runs."""
    parent = Path("runs", safe_name(env), safe_name(algo))
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{seeds}-seeds"
    number, path = 1, parent / stem
    while os.path.lexists(path):
        number += 1
        path = parent / f"{stem}-{number}"
    return path
