"""Population-based training (Jaderberg et al. 2017): trials that copy better ones on the way.

    generation   every trial trains up to the same step, and is evaluated there
    between two  the worst quarter: run directory of one of the best quarter, copied
                                    -> its settings, each of them changed a little

Who copies whom depends on the record of the study alone. So a study that is killed between two
generations makes the same copies again, and a resumed study of a synchronous algorithm has the same
result as one that was never interrupted.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from muster.errors import OptionError
from muster.recipes.settings import Settings
from muster.run.claim import LOCK, WRITER
from muster.seeding import generator
from muster.tuning.errors import SpaceError
from muster.tuning.space import Choices, Space, Span
from muster.tuning.study import Study, StudyRecord, StudyTrial, Takeover

DEFAULT_TRIALS, DEFAULT_GENERATIONS = 8, 10
LEAST_TRIALS, MOST_GENERATIONS = 4, 1_000

_PART = 4
"""One in so many trials is replaced after a generation, and as many may be copied."""
_ANEW = 0.25
"""Probability that an option is drawn anew, from all of its values."""
_FACTORS = (0.8, 1.2)
"""Otherwise a number is multiplied by one of these."""


def check_population(record: StudyRecord, settings: Settings) -> None:
    """Raise OptionError if these trials cannot be a population.

    Args:
        record: The study, whose options name the steps of a trial.
        settings: What all trials share.
    """
    if record.search == "tpe":
        raise SpaceError(
            "--search tpe and --scheduler pbt contradict each other",
            "each decides which settings come next",
            "--search random --scheduler pbt, or --search tpe --scheduler asha",
        )
    if record.trials_wanted < LEAST_TRIALS:
        raise SpaceError(
            f"a population of {record.trials_wanted} is too small",
            f"a quarter of the trials copies another quarter: {LEAST_TRIALS} trials at least",
            f"--trials {DEFAULT_TRIALS}, or more values in --grid",
        )
    fixed = settings.options.FIXED_ON_RESUME | settings.config.FIXED_ON_RESUME
    for name in sorted(fixed & record.space.keys()):
        raise SpaceError(
            f"{name} cannot be tuned with --scheduler pbt",
            "it defines the network or the environments, which cannot change while a trial trains",
            f"leave {name} out, or --scheduler asha",
        )
    if record.options["env_steps"] < record.generations:
        raise OptionError(
            f"{record.options['env_steps']:,} steps cannot be cut into {record.generations:,} "
            "generations",
            "each generation trains for at least one step",
            f"generations={DEFAULT_GENERATIONS}",
        )


def begin_generation(study: Study) -> list[StudyTrial]:
    """Let the worst trials copy the best, and let all train on; return those that copied.

    All trials of the study must have ended. The record is saved after the last copy is complete.
    """
    record = study.record
    sources = {trial.number: study.directory(trial) for trial in record.trials}
    copied = []
    for trial, takeover in _takeovers(record):
        trial.takeovers.append(takeover)
        trial.settings = dict(takeover.settings)
        _copy_run(sources[takeover.source], study.directory(trial))
        copied.append(trial)
    for trial in record.trials:
        trial.status, trial.problem = "waiting", None
    record.generation += 1
    study.save()
    return copied


def _takeovers(record: StudyRecord) -> list[tuple[StudyTrial, Takeover]]:
    """Return who copies whom after the generation that has just ended, and with which settings."""
    ranked = sorted(record.trials, key=lambda each: (_score(each), -each.number), reverse=True)
    count = len(ranked) // _PART
    best = [each for each in ranked[:count] if each.status != "failed"]
    worst = [each for each in ranked if each.status == "failed" or each in ranked[-count:]]
    found = []
    for trial in worst:
        rng = generator(record.seed, "generation", record.generation, "trial", trial.number)
        source = best[int(rng.integers(len(best)))]
        if _score(source) > _score(trial):  # as good as the best: there is nothing to gain
            settings = mutated(record.space, source.settings, rng)
            found.append((trial, Takeover(record.generation + 1, source.number, settings)))
    return found


def _score(trial: StudyTrial) -> float:
    return -np.inf if trial.score is None or trial.status == "failed" else trial.score


def mutated(space: Space, settings: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return the settings of a copy: each drawn anew, or next to those that were copied."""
    found = {}
    for name, values in space.items():
        if rng.random() < _ANEW:
            found[name] = values.draw(rng)
        elif isinstance(values, Choices):
            found[name] = _neighbour(values, settings[name], rng)
        else:
            found[name] = _scaled(values, settings[name], rng)
    return found


def _neighbour(values: Choices, value: Any, rng: np.random.Generator) -> Any:
    """Return the value before or after this one, in the order in which they were given."""
    at = values.values.index(value) + (1 if rng.random() < 0.5 else -1)
    return values.values[min(max(at, 0), len(values.values) - 1)]


def _scaled(span: Span, value: float, rng: np.random.Generator) -> float:
    """Return a number somewhat above or below this one, in the range."""
    factor = _FACTORS[int(rng.integers(len(_FACTORS)))]
    scaled = value * factor
    if span.whole:  # a small number must be able to change, too
        scaled = round(scaled) if round(scaled) != value else value + (1 if factor > 1 else -1)
    low, high = span.samples
    found: float = min(max(scaled, low), high)
    return found


def _copy_run(source: Path, to: Path) -> None:
    """Copy a run directory, all of it or nothing; what an interrupted study copied is replaced."""
    partial = to.with_name(f".{to.name}.partial")
    for old in (partial, to):
        if old.exists():
            shutil.rmtree(old)
    shutil.copytree(source, partial, symlinks=True, ignore=shutil.ignore_patterns(LOCK, WRITER))
    os.rename(partial, to)
