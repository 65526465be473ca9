"""`tune`: runs a study to find the best options, or resumes one that was interrupted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.algos.options import check_flag, check_whole
from muster.errors import OptionError
from muster.recipes.algorithms import check_algorithm, load_algorithm
from muster.recipes.graceful import StopRequest
from muster.recipes.worker_range import MOST_WORKERS
from muster.shown import shown
from muster.tuning.checks import check_same, plain, refuse_changes, refuse_if_all_failed
from muster.tuning.conduct import Conductor
from muster.tuning.errors import StudyError
from muster.tuning.plan import default_jobs, plan, settings_of
from muster.tuning.progress import StudyProgress
from muster.tuning.ranking import TuneResult, add_confirmations, best_config, rank
from muster.tuning.searching import searcher_of
from muster.tuning.study import Study, check_free


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
    confirm: int | None = None,
    scheduler: str | None = None,
    generations: int | None = None,
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
        trials: Number of trials to draw; default 20, and 8 for `pbt`.
        jobs: Trials at a time; None for as many as the cores can run.
        seed: Determines the draws, and the seed of each trial.
        confirm: Number of unseen seeds with which the best five settings run again; 0 for none.
            The default is 5, and 0 for `pbt`.
        scheduler: `median` or `asha` stop trials that fall behind, `none` stops none. `pbt` lets
            them continue as copies of better ones. The default is `median` for a search, `none` for
            a grid.
        generations: With `pbt`: how often trials are compared; default 10.
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
    given = plain(options)
    if resume is not None:
        changed: dict[str, Any] = {"grid": grid, "space": space, "search": search, "trials": trials}
        changed |= {"scheduler": scheduler, "generations": generations, "confirm": confirm}
        changed |= {"out": out, "config": config}
        refuse_changes(changed, given)
        study = Study.open(resume)
        with study:
            if study.record.search == "seeds":
                raise StudyError(
                    f"{shown(study.path)} holds runs with several seeds of the same settings",
                    "nothing is tried there that could be ranked",
                    f"muster resume {shown(study.path)}",
                )
            check_same(study.record, algo, env, given)
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
        generations=generations,
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
            evolves = record.scheduler == "pbt"
            (conductor.evolve if evolves else conductor.search)(searcher_of(study))
            if not stop.is_requested():
                refuse_if_all_failed(study)
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
