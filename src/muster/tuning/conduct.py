"""Runs the trials of a study, several at a time, until none is left or a stop is requested.

next trial -> process -> ended? -> study.json
                 └ evaluations -> rule -> SIGTERM

A population trains in generations: all trials up to a step, then copies, then all trials again.
"""

import time
from collections.abc import Callable
from pathlib import Path

from muster.recipes.graceful import StopRequest
from muster.report.runs import RETURN
from muster.run.curves import read_curves
from muster.tuning.checks import refuse_if_all_failed
from muster.tuning.population import begin_generation
from muster.tuning.process import TrialProcess, outcome, wait_for_any
from muster.tuning.progress import StudyProgress
from muster.tuning.pruning import RULES, Evaluations
from muster.tuning.searching import Searcher
from muster.tuning.study import Study, StudyTrial

_TURN_S = 0.25
"""How long to wait for a trial before checking signals and evaluations."""


class Conductor:
    """Runs trials.

    Args:
        study: The study.
        jobs: Number of trials at a time.
        total_steps: Environment steps of a whole trial, for pruning rules.
        stop: Whether a stop was requested.
        progress: Where progress is reported.
    """

    def __init__(
        self, study: Study, jobs: int, total_steps: int, stop: StopRequest, progress: StudyProgress
    ) -> None:
        self._study = study
        self._jobs = jobs
        self._total = total_steps
        self._stop = stop
        self._progress = progress
        self._rule = RULES[study.record.scheduler]
        self._curves: dict[int, Evaluations] = {}
        self._looked = 0.0
        self._searcher: Searcher | None = None

    def search(self, searcher: Searcher | None) -> None:
        """Run the trials of the search."""
        self._searcher = searcher
        self._run(lambda active: self._waiting(active, confirms=False) or self._propose())

    def evolve(self, searcher: Searcher | None) -> None:
        """Run the trials of a population, generation by generation."""
        record = self._study.record
        self.search(searcher)
        while record.generation + 1 < record.generations and not self._stop.is_requested():
            refuse_if_all_failed(self._study)
            copied = begin_generation(self._study)
            self._progress.generation(record, copied)
            self.search(searcher)

    def confirm(self) -> None:
        """Run the best settings, which the study has recorded, with other seeds."""
        self._searcher = None
        self._run(lambda active: self._waiting(active, confirms=True))

    def _run(self, next_trial: Callable[[set[int]], StudyTrial | None]) -> None:
        running: list[TrialProcess] = []
        try:
            while True:
                while len(running) < self._jobs and not self._stop.is_requested():
                    trial = next_trial({id(each.trial) for each in running})
                    if trial is None:
                        break
                    if not self._ended_before(trial):
                        running.append(self._start(trial))
                if not running:
                    return
                self._progress.running(self._study.record, len(running))
                wait_for_any(running, _TURN_S)
                for each in [each for each in running if each.has_ended()]:
                    each.close()
                    running.remove(each)
                    self._take(each)
                if self._stop.is_requested():
                    for each in running:
                        each.stop()
                else:
                    self._prune(running)
        finally:
            for each in running:
                each.kill()

    def _waiting(self, active: set[int], confirms: bool) -> StudyTrial | None:
        """Return a trial that has not ended: a new one, or one that was interrupted."""
        for trial in self._study.record.trials:
            if bool(trial.repeat) == confirms and not trial.ended and id(trial) not in active:
                return trial
        return None

    def _propose(self) -> StudyTrial | None:
        record = self._study.record
        if self._searcher is None or len(record.trials) >= record.trials_wanted:
            return None
        number = len(record.trials)
        settings, sampled_as = self._searcher.propose(number)
        seed = seed_of(record.seed, number)
        record.trials.append(StudyTrial(number, settings, seed, sampled_as=sampled_as))
        self._study.save()
        return record.trials[-1]

    def _start(self, trial: StudyTrial) -> TrialProcess:
        trial.status = "running"
        self._study.save()
        return TrialProcess(self._study, trial)

    def _ended_before(self, trial: StudyTrial) -> bool:
        """Record the outcome of a trial that ended while no study process was running."""
        if trial.status != "running":
            return False
        score, steps, finished = outcome(self._study.directory(trial), self._goal(trial))
        if not finished or score is None:
            return False
        self._end(trial, score, steps, None, 0.0)
        return True

    def _goal(self, trial: StudyTrial) -> int | None:
        return None if trial.repeat else self._study.record.goal

    def _take(self, process: TrialProcess) -> None:
        """Record the outcome of a process that has ended."""
        trial, problem = process.trial, process.failure()
        score, steps, finished = outcome(process.directory, self._goal(trial))
        if problem is None and process.told_to_stop and not finished:
            if trial.status == "running":
                return  # it continues when the study is resumed
        elif problem is None and score is None:
            problem = f"it has no return; see {process.directory}"
        self._end(trial, score, steps, problem, time.monotonic() - process.began)

    def _end(
        self,
        trial: StudyTrial,
        score: float | None,
        steps: int | None,
        problem: str | None,
        seconds: float,
    ) -> None:
        trial.score, trial.env_steps, trial.problem = score, steps, problem
        if problem is not None:
            trial.status, trial.score = "failed", None
        elif trial.status != "pruned":
            trial.status = "finished"
        self._study.save()
        if not trial.repeat:
            self._curves[trial.number] = _evaluations(self._study.directory(trial))
            if self._searcher is not None:
                self._searcher.tell(trial, self._curves[trial.number])
        self._progress.ended(self._study.record, trial, seconds)

    def _prune(self, running: list[TrialProcess]) -> None:
        """Stop trials that the study's rule rejects; confirmation runs are never stopped."""
        if self._rule is None or time.monotonic() - self._looked < 4 * _TURN_S:
            return
        self._looked = time.monotonic()
        trials = [trial for trial in self._study.record.trials if not trial.repeat]
        for trial in trials:
            if trial.status == "running" or trial.number not in self._curves:
                self._curves[trial.number] = _evaluations(self._study.directory(trial))
        for each in running:
            number = each.trial.number
            if each.told_to_stop or each.trial.repeat:
                continue
            others = [self._curves[trial.number] for trial in trials if trial.number != number]
            if self._rule(self._curves[number], others, self._total):
                each.trial.status = "pruned"  # saved before the signal: it is never restarted
                self._study.save()
                each.stop()


def seed_of(seed: int, number: int, repeat: int = 0) -> int:
    """Return the seed of a trial; confirmation runs share seeds, for equal conditions."""
    from muster.seeding import derive_seed

    # Short enough to be typed, and for the name of a file.
    path = ("confirm", repeat) if repeat else ("trial", number, "seed")
    return derive_seed(seed, *path) % 2**31


def _evaluations(directory: Path) -> Evaluations:
    try:
        found = read_curves(directory / "metrics.jsonl", only=RETURN).metrics.get(RETURN)
    except OSError:
        return []
    if found is None:
        return []
    return [
        (int(step), float(value)) for step, value in zip(found.env_step, found.value, strict=True)
    ]
