"""Ranks the settings of a study by their confirmation runs, or else by their one trial."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from muster.columns import cut, harmless, lines, short_number
from muster.recipes.own_modules import is_code
from muster.report.statistics import Interval, bootstrap, iqm
from muster.run.config_io import to_yaml
from muster.tuning.conduct import seed_of
from muster.tuning.progress import settings_text
from muster.tuning.space import FUNCTIONS, MAY_BE_CODE
from muster.tuning.study import StudyRecord, StudyTrial

CONFIRMED = 5
"""Number of best settings that are run again."""
_MOST_ROWS = 20
_SETTINGS_WIDTH = 34


@dataclass(frozen=True)
class RankedTrial:
    """The settings of one trial, and their results."""

    number: int
    settings: dict[str, Any]
    status: str
    score: float | None
    """The return of the trial itself."""
    returns: tuple[float, ...] = ()
    """The returns of its confirmation runs."""
    iqm: float | None = None
    interval: Interval | None = None
    place: str = ""
    """The run directory of the trial, relative to that of the study."""


@dataclass(frozen=True)
class TuneResult:
    """The result of a study: its trials, the best first."""

    algo: str
    env: str
    path: Path
    """The directory of the study."""
    trials: tuple[RankedTrial, ...]
    stop_signal: int | None = None
    """The signal that stopped the study, if one did; the study can be resumed."""
    confirm: int = field(default=0, repr=False)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best settings; None if no trial has finished."""
        first = self.trials[0] if self.trials else None
        return first.settings if first is not None and first.status == "finished" else None

    @property
    def best_run(self) -> Path:
        """The run directory of the best trial."""
        return self.path / self.trials[0].place

    @property
    def best_file(self) -> Path:
        """The file for `muster train --config`."""
        return self.path / "best.yaml"

    def table(self) -> str:
        """Return the ranking as a table of at most 80 columns."""
        rows = [["", "trial", "settings", "return", "IQM", "95 % interval"]]
        for place, each in enumerate(self.trials[:_MOST_ROWS], 1):
            interval = each.interval
            rows.append(
                [
                    str(place),
                    str(each.number),
                    cut(harmless(settings_text(each.settings)), _SETTINGS_WIDTH),
                    each.status if each.status != "finished" else short_number(each.score),
                    short_number(each.iqm),
                    "-"
                    if interval is None
                    else f"[{short_number(interval.low)}, {short_number(interval.high)}]",
                ]
            )
        text = lines(rows, right=(0, 1, 3, 4))
        left = len(self.trials) - _MOST_ROWS
        return "\n".join(text + ([f"and {left} more, in study.json"] if left > 0 else []))


def rank(record: StudyRecord) -> tuple[RankedTrial, ...]:
    """Return the trials of a study, the best first: confirmed ones before all others."""
    found = [_ranked(record, trial) for trial in record.trials if not trial.repeat]

    def order(each: RankedTrial) -> tuple[Any, ...]:
        statuses = ("finished", "pruned", "running", "waiting", "failed")
        score = -(each.score if each.score is not None else 0.0)
        confirmed = 0 if each.iqm is not None else 1
        return statuses.index(each.status), confirmed, -(each.iqm or 0.0), score, each.number

    return tuple(sorted(found, key=order))


def add_confirmations(record: StudyRecord) -> None:
    """Add the runs that confirm the best settings, unless the record already has them."""
    if not record.confirm or any(trial.repeat for trial in record.trials):
        return
    best = [each for each in rank(record) if each.status == "finished"][:CONFIRMED]
    for repeat in range(1, record.confirm + 1):
        for each in best:
            seed = seed_of(record.seed, each.number, repeat)
            record.trials.append(StudyTrial(each.number, each.settings, seed, repeat))


def best_config(record: StudyRecord, best: dict[str, Any]) -> str:
    """Return the text of a file that trains with the best settings.

    The user's own code is left out: a file does not decide which code is run.
    """
    options = {**record.options, **best}
    kept = {
        name: value
        for name, value in options.items()
        if name not in FUNCTIONS and not (name in MAY_BE_CODE and is_code(value))
    }
    return to_yaml({"algo": record.algo, "env": record.env, **kept})


def _ranked(record: StudyRecord, trial: StudyTrial) -> RankedTrial:
    runs = [
        each.score
        for each in record.trials
        if each.repeat and each.number == trial.number and each.status == "finished"
    ]
    returns = tuple(score for score in runs if score is not None)
    known = RankedTrial(trial.number, trial.settings, trial.status, trial.score, place=trial.place)
    if not returns:
        return known
    return replace(
        known, returns=returns, iqm=float(iqm(returns)), interval=bootstrap(iqm, returns)
    )
