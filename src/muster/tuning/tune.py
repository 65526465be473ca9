"""`tune`: runs a study to find the best options, or resumes one that was interrupted."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.algos.options import check_flag, check_whole
from muster.errors import OptionError
from muster.recipes.algorithms import check_algorithm, load_algorithm
from muster.recipes.given import as_written
from muster.recipes.graceful import StopRequest
from muster.recipes.own_modules import is_code
from muster.recipes.worker_range import MOST_WORKERS
from muster.shown import shown
from muster.tuning.conduct import Conductor
from muster.tuning.errors import TrialsFailedError
from muster.tuning.plan import default_jobs, plan, settings_of
from muster.tuning.progress import StudyProgress
from muster.tuning.ranking import TuneResult, add_confirmations, best_config, rank
from muster.tuning.searching import searcher_of
from muster.tuning.space import FUNCTIONS
from muster.tuning.study import Study, StudyRecord, check_free


def tune(
    algo: str | None = None,
    env: str | None = None,
    *,
    grid: Mapping[str, Any] | None = None,
    space: Mapping[str, Any] | None = None,
    search: str | None = None,
    trials: int | None = None,
    jobs: int | None = None,
    seed: int = 0,
    confirm: int = 5,
    scheduler: str | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    config: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> TuneResult:
    """Train with many settings, each in its own process, and find the best of them.

    Args:
        algo: Name of the algorithm, as for `muster.train`. Not needed to resume a study.
        env: Id of the environment.
        grid: Values to try by option, in every combination: `{"lr": [0.01, 0.001]}`.
        space: Ranges to draw from by option: a list of values, `"0.9:0.999"`, `"log:1e-5:1e-2"`.
        search: How to draw: `random` (the default) or `tpe`, which needs Optuna.
        trials: Number of trials to draw; default 20.
        jobs: Trials at a time; None for as many as the cores can run.
        seed: Determines the draws, and the seed of each trial.
        confirm: Number of unseen seeds with which the best five settings run again; 0 for none.
        scheduler: `median` or `asha` stop trials that fall behind, `none` stops none. The default
            is `median` for a search, `none` for a grid.
        out: Directory of the study. None for a new one under `tunes/`.
        resume: Directory of a study to resume. Then only `jobs` and `quiet` apply, and your own
            code, which has to be named again.
        config: A file of options for all trials.
        quiet: Print only failures.
        **options: Options for all trials, as for `muster.train`.

    Raises:
        OptionError: An argument is invalid; nothing was started.
        TrialsFailedError: Every trial failed.
    """
    check_flag("quiet", quiet)
    if jobs is not None:
        check_whole("jobs", jobs, high=MOST_WORKERS)
    load_algorithm(algo)
    given = _plain(options)
    if resume is not None:
        changed: dict[str, Any] = {"grid": grid, "space": space, "search": search, "trials": trials}
        changed |= {"scheduler": scheduler, "out": out, "config": config}
        _refuse_changes(changed, given)
        study = Study.open(resume)
        with study:
            _check_same(study.record, algo, env, given)
            return _conduct(study, jobs, quiet)
    if algo is None or env is None:
        raise OptionError(
            f"muster.tune needs an {'algorithm' if algo is None else 'environment'}",
            "only a resumed study already has one",
            'muster.tune("ppo", "CartPole-v1", grid={"lr": [0.01, 0.001]})',
        )
    check_algorithm(algo, f"muster tune {{}} {env}")
    if out is not None:
        check_free(out)
    record = plan(
        algo,
        env,
        given,
        grid=grid,
        space=space,
        search=search,
        trials=trials,
        seed=seed,
        confirm=confirm,
        scheduler=scheduler,
        config=config,
    )
    with Study.create(out, record) as study:
        return _conduct(study, jobs, quiet)


def _conduct(study: Study, jobs: int | None, quiet: bool) -> TuneResult:
    record, stop, progress = study.record, StopRequest(), StudyProgress(quiet)
    at_once = jobs or default_jobs(record)
    settings = settings_of(record)
    total = settings.options.env_steps or settings.config.horizon
    with stop.listening():
        progress.say(f"study directory: {shown(study.path)}, {at_once} trials at a time")
        done = sum(trial.ended for trial in record.trials)
        if done:
            progress.say(f"{done} trials have already ended, and are not repeated")
        conductor = Conductor(study, at_once, total, stop, progress)
        try:
            conductor.search(searcher_of(study))
            if not stop.is_requested():
                _refuse_if_all_failed(study)
                add_confirmations(record)
                study.save()
                conductor.confirm()
        finally:
            progress.close()
    ranking = rank(record)
    result = TuneResult(record.algo, record.env, study.path, ranking, stop.signal, record.confirm)
    if stop.signal is None:
        best = result.best
        if best is not None:
            study.write("best.yaml", best_config(record, best))
        study.write("table.txt", f"{result.table()}\n")
    return result


def _refuse_if_all_failed(study: Study) -> None:
    trials = [trial for trial in study.record.trials if not trial.repeat]
    if trials and all(trial.status == "failed" for trial in trials):
        raise TrialsFailedError(
            f"all {len(trials)} trials failed",
            f"{trials[0].name}: {trials[0].problem}",
            f"less {shown(study.path / trials[0].log)}",
        )


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    plain = as_written(options)
    if plain.get("from_checkpoint") is not None:
        plain["from_checkpoint"] = os.path.abspath(plain["from_checkpoint"])
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
    }


def _refuse_changes(changed: dict[str, Any], options: dict[str, Any]) -> None:
    """Reject options that a resumed study cannot change; the user's own code is named again."""
    names = [name for name, value in changed.items() if value is not None]
    names += [name for name in options if name not in ("model", *FUNCTIONS)]
    if names:
        raise OptionError(
            f"a resumed study does not accept {names[0]}",
            "its settings come from its directory, so that trials can be compared",
            "only jobs and quiet together with resume, or a new study",
        )


def _check_same(
    record: StudyRecord, algo: str | None, env: str | None, options: dict[str, Any]
) -> None:
    """Reject another algorithm or environment, and code that only the study's file names."""
    for name, there, here in (("algo", record.algo, algo), ("env", record.env, env)):
        if here is not None and here != there:
            raise OptionError(
                f"the study is of {name} {there!r:.80}, not of {here!r:.80}",
                "a resumed study has its own",
                "muster tune --resume DIR, without algorithm and environment",
            )
        if is_code(there) and here is None:
            raise _names_code(there)
    tried = [record.options, *(trial.settings for trial in record.trials)]
    models = {each.get("model") for each in tried}
    if "model" in record.space:
        models |= set(record.space["model"].samples)
    functions = [each for name in FUNCTIONS for each in record.options.get(name) or ()]
    mine = {options.get("model"), *(each for name in FUNCTIONS for each in options.get(name) or ())}
    for code in [*sorted(str(each) for each in models if is_code(each)), *functions]:
        if code not in mine:
            raise _names_code(code)


def _names_code(code: str) -> OptionError:
    return OptionError(
        f"the study runs your own code, {code!r:.80}",
        "a file can come from anyone, so it must not choose the code that runs",
        "name it again: muster tune ALGO ENV --resume DIR --model ... --use ... --wrapper ...",
    )
