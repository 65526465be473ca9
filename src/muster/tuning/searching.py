"""The source of the settings of the next trial: `propose` and `tell`, for each search method."""

import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from muster.errors import OptionError
from muster.installs import install
from muster.seeding import derive_seed, generator
from muster.tuning.space import Choices, Space
from muster.tuning.study import Study, StudyRecord, StudyTrial

if TYPE_CHECKING:
    import optuna

JOURNAL = "optuna.journal"
"""Optuna's own file of a study; `optuna-dashboard tunes/.../optuna.journal` shows it."""


class Searcher(Protocol):
    """Proposes settings, and receives their results."""

    def propose(self, number: int) -> tuple[dict[str, Any], int | None]:
        """Return the settings of a new trial, and its number in the searcher's own storage."""

    def tell(self, trial: StudyTrial, curve: list[tuple[int, float]]) -> None:
        """Receive a trial that has ended, with its evaluations (env_step, return)."""


class RandomSearch:
    """Draws every option independently, from the study's seed and the trial's number alone."""

    def __init__(self, record: StudyRecord) -> None:
        self._record = record

    def propose(self, number: int) -> tuple[dict[str, Any], None]:
        """Draw settings."""
        rng = generator(self._record.seed, "trial", number)
        return {name: each.draw(rng) for name, each in self._record.space.items()}, None

    def tell(self, trial: StudyTrial, curve: list[tuple[int, float]]) -> None:
        """Ignore the result."""


class TpeSearch:
    """Optuna's tree-structured Parzen estimator, with its trials in a journal in the study.

    Args:
        study: The study; its trials that have already ended are reported to Optuna.
    """

    def __init__(self, study: Study) -> None:
        check_optuna()
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        record, self._space = study.record, study.record.space
        journal = str(study.path / JOURNAL)
        # A killed process may have left the lock, and this process has claimed the study.
        Path(f"{journal}.lock").unlink(missing_ok=True)
        # Depends on the number of trials: a resumed study must not draw its first ones again.
        seed = derive_seed(record.seed, "tpe", len(record.trials)) % 2**32
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(journal)),
            sampler=optuna.samplers.TPESampler(seed=seed),
            study_name=f"{record.algo} on {record.env}",
            direction="maximize",
            load_if_exists=True,
        )
        self._catch_up(record)

    def propose(self, number: int) -> tuple[dict[str, Any], int]:
        """Ask Optuna."""
        trial = self._study.ask()
        found: dict[str, Any] = {}
        for name, each in self._space.items():
            if isinstance(each, Choices):
                by_text = {_text(value): value for value in each.values}
                found[name] = by_text[trial.suggest_categorical(name, list(by_text))]
            elif each.whole:
                low, high = int(each.low), int(each.high)
                found[name] = trial.suggest_int(name, low, high, log=each.log)
            else:
                found[name] = trial.suggest_float(name, each.low, each.high, log=each.log)
        return found, trial.number

    def tell(self, trial: StudyTrial, curve: list[tuple[int, float]]) -> None:
        """Report the return to Optuna; of a pruned trial, Optuna counts the last one reported."""
        if trial.sampled_as is None:
            return
        from optuna.trial import Trial, TrialState

        (saved,) = (each for each in self._study.trials if each.number == trial.sampled_as)
        if saved.state.is_finished():
            return
        for step, value in curve:
            Trial(self._study, saved._trial_id).report(value, step)
        ends = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
        state = ends.get(trial.status, TrialState.FAIL)
        score = trial.score if state is TrialState.COMPLETE else None
        self._study.tell(trial.sampled_as, score, state=state)

    def _catch_up(self, record: StudyRecord) -> None:
        """Report what a killed process had not reported, and fail what it had only asked for."""
        known = {trial.sampled_as: trial for trial in record.trials if not trial.repeat}
        unfinished: list[optuna.trial.FrozenTrial] = [
            each for each in self._study.trials if not each.state.is_finished()
        ]
        for each in unfinished:
            trial = known.get(each.number)
            if trial is None:
                from optuna.trial import TrialState

                self._study.tell(each.number, state=TrialState.FAIL)
            elif trial.ended:
                self.tell(trial, [])


def searcher_of(study: Study) -> Searcher | None:
    """Return the searcher of a study; None if its trials are all known, as those of a grid are."""
    if study.record.search in ("grid", "seeds"):
        return None
    return TpeSearch(study) if study.record.search == "tpe" else RandomSearch(study.record)


def check_optuna() -> None:
    """Raise OptionError if Optuna is not installed, without importing it."""
    if importlib.util.find_spec("optuna") is None:
        raise OptionError(
            "search=tpe needs Optuna, which is not installed",
            "Optuna is an extra of muster; grid and random search do not need it",
            install("tune"),
        )


def check_space(space: Space) -> None:
    """Raise OptionError for choices that Optuna could not distinguish."""
    for name, each in space.items():
        if isinstance(each, Choices) and len({_text(v) for v in each.values}) < len(each.values):
            raise OptionError(
                f"two values of {name} are written alike", "Optuna stores their text", "one of them"
            )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return repr(value) if isinstance(value, float) and math.isfinite(value) else str(value)
