"""From the arguments of `tune` to the validated record of a study.

Imports neither torch nor Optuna, creates nothing and starts nothing.
"""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.algos.options import check_choice, check_whole
from muster.container import whole_cores
from muster.envs import UnknownEnvError
from muster.errors import OptionError
from muster.recipes.algorithms import ENTRY_POINTS, is_registered
from muster.recipes.beforehand import check_beforehand, check_env
from muster.recipes.clones import is_fitted
from muster.recipes.options import MOST_SEED
from muster.recipes.own_modules import is_code
from muster.recipes.saved import saved_config
from muster.recipes.settings import Settings, read_file, resolve
from muster.run import RunDirectory
from muster.tuning import population
from muster.tuning.conduct import seed_of
from muster.tuning.errors import SpaceError
from muster.tuning.searching import check_optuna, check_space
from muster.tuning.space import MOST_TRIALS, Space, combinations, count, read_space
from muster.tuning.study import Scheduler, Search, StudyRecord, StudyTrial

DEFAULT_TRIALS = 20
DEFAULT_CONFIRM, MOST_CONFIRM = 5, 100
_OF_THE_STUDY = ("seed", "run_dir", "resume", "quiet")


def plan(
    algo: str,
    env: str,
    options: Mapping[str, Any],
    *,
    grid: Mapping[str, Any] | None,
    space: Mapping[str, Any] | None,
    search: str | None,
    trials: int | None,
    seed: int,
    confirm: int | None,
    scheduler: str | None,
    generations: int | None,
    config: str | Path | None,
) -> StudyRecord:
    """Return the record of a new study; the arguments are those of `tune`."""
    given = {**({} if config is None else read_file(config, algo, env)), **options}
    for name in _OF_THE_STUDY:
        given.pop(name, None)
    evolves = scheduler == "pbt"
    usual = population.DEFAULT_TRIALS if evolves else DEFAULT_TRIALS
    found, kind, wanted = _what_to_try(algo, grid, space, search, trials, usual)
    check_whole("seed", seed, low=0, high=MOST_SEED)
    if confirm is None:  # the result of a population is a policy: its settings have changed
        confirm = 0 if evolves else DEFAULT_CONFIRM
    check_whole("confirm", confirm, low=0, high=MOST_CONFIRM)
    rule = ("none" if kind == "grid" else "median") if scheduler is None else scheduler
    check_choice("scheduler", rule, Scheduler)
    pieces = _pieces(generations, evolves)
    both = sorted(set(found) & set(options))
    if both:
        raise SpaceError(
            f"{both[0]} is fixed and tried at the same time",
            "an option is the same for all trials, or one of those that differ",
            f"leave out --{both[0].replace('_', '-')}",
        )
    _check_algorithm(algo)
    record = StudyRecord(
        algo=algo,
        env=env,
        options=_alone(algo, env, given),
        search=kind,
        space=found,
        trials_wanted=wanted,
        seed=seed,
        confirm=confirm,
        scheduler=rule,  # type: ignore[arg-type]  # it was checked
        generations=pieces,
    )
    if evolves:
        settings = settings_of(record)
        record.options["env_steps"] = settings.options.env_steps or settings.config.horizon
        population.check_population(record, settings)
    _check_settings(record)
    if kind == "grid":
        record.trials = [
            StudyTrial(number, settings, seed_of(seed, number))
            for number, settings in enumerate(combinations(found))
        ]
    return record


def plan_seeds(
    algo: str, env: str, options: Mapping[str, Any], seeds: int, config: str | Path | None
) -> StudyRecord:
    """Return the record of several runs that differ in their seed only.

    The first has the seed of `options`, or 0; each of the others has the next one.
    """
    given = {**({} if config is None else read_file(config, algo, env)), **options}
    first = given.get("seed", 0)
    check_whole("seeds", seeds, low=2, high=MOST_TRIALS)
    check_whole("seed", first, low=0, high=MOST_SEED - seeds)
    for name in _OF_THE_STUDY:
        given.pop(name, None)
    _check_algorithm(algo)
    record = StudyRecord(
        algo=algo,
        env=env,
        options=_alone(algo, env, given),
        search="seeds",
        space={},
        trials_wanted=seeds,
        seed=first,
        confirm=0,
        scheduler="none",
        trials=[StudyTrial(number, {}, first + number) for number in range(seeds)],
    )
    _check_settings(record)
    return record


def settings_of(record: StudyRecord, settings: Mapping[str, Any] | None = None) -> Settings:
    """Return the resolved settings of a trial."""
    return resolve(record.algo, record.env, {**record.options, **(settings or {})})


def default_jobs(record: StudyRecord) -> int:
    """Return how many trials can run on this machine without sharing a core."""
    return max(1, whole_cores() // max(1, settings_of(record).workers))


def _what_to_try(
    algo: str,
    grid: Mapping[str, Any] | None,
    space: Mapping[str, Any] | None,
    search: str | None,
    trials: int | None,
    usual_trials: int,
) -> tuple[Space, Search, int]:
    if search is not None:
        check_choice("search", search, Search)
    if grid is not None and (space is not None or search not in (None, "grid")):
        other = "--space" if space is not None else f"--search {search}"
        raise SpaceError(
            f"--grid and {other} contradict each other",
            "a grid tries every combination; a search draws from a space",
            "--grid ..., or --space ... --search random",
        )
    if grid is None and (space is None or search == "grid"):
        raise SpaceError(
            "the study has nothing to try",
            "a grid names values, a space names ranges",
            "--grid lr=0.01,0.001" if search in (None, "grid") else "--space lr=log:1e-5:1e-2",
        )
    if trials is not None:
        check_whole("trials", trials, high=MOST_TRIALS)
    if grid is None:
        assert space is not None
        found = read_space(algo, space, "space")
        if search == "tpe":
            check_optuna()
            check_space(found)
        return found, "tpe" if search == "tpe" else "random", trials or usual_trials
    found = read_space(algo, grid, "grid")
    if trials is not None:
        raise SpaceError(
            "--grid and --trials contradict each other",
            f"this grid has {count(found):,} combinations, and each is one trial",
            "leave out --trials, or --space ... --search random",
        )
    if count(found) > MOST_TRIALS:
        raise SpaceError(
            f"the grid has {count(found):,} combinations",
            f"a study has at most {MOST_TRIALS:,} trials",
            "--space ... --search random --trials 100",
        )
    return found, "grid", count(found)


def _pieces(generations: int | None, evolves: bool) -> int:
    """Return the number of generations; 1 without a population."""
    if generations is None:
        return population.DEFAULT_GENERATIONS if evolves else 1
    check_whole("generations", generations, low=2, high=population.MOST_GENERATIONS)
    if not evolves:
        raise SpaceError(
            "--generations needs --scheduler pbt",
            "only the trials of a population train in generations",
            f"--scheduler pbt --generations {generations}",
        )
    return generations


def _alone(algo: str, env: str, given: dict[str, Any]) -> dict[str, Any]:
    """Give each trial one process where that changes no result, so that trials fill the cores.

    A recipe whose workers learn in step gives the same policy for any number of workers.
    """
    settings = resolve(algo, env, given)
    said = settings.options.workers, settings.options.learners
    local = settings.options.engine == "local"
    if settings.config.PROGRAM == "in_step" and said == (None, None) and local:
        return {**given, "workers": 0}
    return given


def _check_algorithm(algo: str) -> None:
    """Reject an algorithm that only this process knows: trials are separate processes."""
    packaged = importlib.metadata.entry_points(group=ENTRY_POINTS, name=algo)
    if is_registered(algo) and not is_code(algo) and not packaged:
        raise OptionError(
            f"the algorithm {algo!r} is registered in this process only",
            "trials are separate processes, which must import it",
            'muster.tune("my_module:my_algorithm", ...)',
        )


def _check_settings(record: StudyRecord) -> None:
    """Validate every combination of a grid; of a space, each end and choice separately."""
    settings = settings_of(record)
    if record.search in ("grid", "seeds"):
        tried = list(combinations(record.space))
    else:
        tried = [{name: v} for name, each in record.space.items() for v in each.samples]
    for each in tried:
        try:
            settings_of(record, each)
        except OptionError as error:
            what, why, fix = error.args
            listed = ", ".join(f"{name} {value!r}" for name, value in each.items())
            raise SpaceError(
                f"a trial with {listed:.120} is not possible: {what}", why, fix
            ) from None
    first = settings_of(record, tried[0])
    path = settings.options.from_checkpoint
    check_beforehand(
        replace(first, options=replace(first.options, run_dir=None, resume=False)), is_new=True
    )
    try:
        check_env(record.env, first)
    except UnknownEnvError as error:
        raise error.to_try("muster tune {} {}", record.algo) from None
    if path is not None:
        _check_checkpoint(path, record)


def _check_checkpoint(path: str, record: StudyRecord) -> None:
    saved = saved_config(RunDirectory.open(path))
    if is_fitted(saved):  # each trial checks its own network
        return
    there = saved.get("algo"), saved.get("env")
    if there != (record.algo, record.env):
        raise OptionError(
            f"{path} is of {there[0]} on {there[1]}",
            f"this study is of {record.algo} on {record.env}",
            f"muster tune {there[0]} {there[1]} ...",
        )
