"""`train`: from the name of an algorithm and an environment to a finished run."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from muster.envs import UnknownEnvError, make_envs
from muster.errors import OptionError
from muster.framework import Parallel
from muster.nets.threads import one_torch_thread
from muster.recipes.algorithms import ALGORITHMS, load
from muster.recipes.failure import keep_failure
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job
from muster.recipes.memory import check_memory, check_shared_memory
from muster.recipes.models import check_model_for_nodes, load_model
from muster.recipes.policy import load_policy
from muster.recipes.progress import name_of_terminal
from muster.recipes.result import RunResult
from muster.recipes.saved import saved_config
from muster.recipes.settings import Settings, resolve
from muster.run import Checkpoint, RunDirectory


def train(algo: str, env: str, config: str | Path | None = None, **options: Any) -> RunResult:
    """Train an agent, with a run directory that can be trusted and resumed.

    Args:
        algo: Name of the algorithm: `dqn` or `ppo`.
        env: Id of the environment.
        config: A file of options, such as the `config.yaml` of a run.
        **options: Fields of `TrainOptions` and of the algorithm's configuration. What is not given
            comes from the file, or else from the preset for this environment, or is the default.
    """
    settings = resolve(algo, env, options, config)
    load_model(settings.config.model)
    if settings.workers:
        check_model_for_nodes(settings.config.model)
    try:
        agent = _try_out(algo, env, settings)  # what is wrong is said before anything is written
    except UnknownEnvError as error:
        raise error.to_try("muster.train({!r}, {!r})", algo) from None
    recipe = load(algo, "recipe")
    stop = StopRequest()
    start_from = None if settings.options.resume else _policy_to_start_from(algo, env, settings)
    with stop.listening(), one_torch_thread(), _open_run(algo, env, settings) as run:
        if settings.options.resume:
            start_from = _checked(run, algo, env, settings)
            settings.config.check_resume(start_from.parts, settings.options.num_envs)
        if start_from is not None:
            agent.load_parts({"policy": start_from.parts["policy"]})  # does it fit?
        run.forget_result()
        run.write_config({"algo": algo, "env": env, **_to_write(settings)})
        source = None if start_from is None else str(start_from.path)
        workers = settings.workers
        job = Job(
            algo,
            env,
            settings.config,
            settings.options,
            workers,
            str(run.path),
            terminal=name_of_terminal(),
            start_from=source,
        )
        try:
            result = _run(recipe, job, run, stop)
        except Exception as error:
            keep_failure(error, run)
            raise
        run.write_result(result.as_json())
    return replace(result, stop_signal=stop.signal)


def _run(recipe: Any, job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Run a recipe, and bring home what nodes have left in the run directory."""
    result: RunResult
    try:
        result = recipe(job, run, stop)
    except (KeyboardInterrupt, SystemExit):
        saved = run.read_result()
        if not job.workers or saved is None or saved["stop_signal"] is None:
            raise
        result = RunResult.from_json(saved)
        stop.signal = result.stop_signal
    if job.workers:
        # The last one, as in one process; the best one is what `load_policy(run)` gives.
        last = run.checkpoints.last() or run.path
        result = replace(result, policy=load_policy(last, model=job.cfg.model))
    return result


def _try_out(algo: str, env: str, settings: Settings) -> Any:
    """Have everything refused that does not fit together, and return an agent."""
    seed = settings.options.seed
    with make_envs(env, seed=seed) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
    settings.config.check_actions(spaces[1])
    check_memory(settings, *spaces)
    if settings.workers:  # they load torch while this process does
        where = settings.options
        Parallel.prepare(ALGORITHMS[algo].nodes, engine=where.engine, address=where.address)
    with one_torch_thread():
        agent = load(algo, "agent")(settings.config, *spaces, seed)
    check_shared_memory(settings, agent)
    return agent


def _open_run(algo: str, env: str, settings: Settings) -> RunDirectory:
    options = settings.options
    return RunDirectory.create(options.run_dir, env, algo, options.seed, resume=options.resume)


def _to_write(settings: Settings) -> dict[str, Any]:
    """Return what another run can be told with `--config`: not where this one is."""
    options = asdict(settings.options)
    for name in ("run_dir", "resume", "engine", "address"):
        del options[name]
    return {**options, **asdict(settings.config)}


def _policy_to_start_from(algo: str, env: str, settings: Settings) -> Checkpoint | None:
    path = settings.options.from_checkpoint
    return None if path is None else _checked(RunDirectory.open(path), algo, env, settings)


def _checked(run: RunDirectory, algo: str, env: str, settings: Settings) -> Checkpoint:
    """Load a checkpoint of `run`, or say that it is of something else."""
    checkpoint = run.checkpoints.load(run.checkpoint)
    saved = (checkpoint.meta.get("algo"), checkpoint.meta.get("env"))
    if saved != (algo, env):
        raise OptionError(
            f"{checkpoint.path} is of {saved[0]} on {saved[1]}",
            f"this run is {algo} on {env}",
            f"muster train {saved[0]} {saved[1]} ...",
        )
    model = saved_config(run).get("model")
    if model != settings.config.model:
        raise OptionError(
            f"the policy in {checkpoint.path} is of the model {model!r:.80}",
            f"this run's model is {settings.config.model!r:.80}; "
            "a run's own files do not choose it, because it may be code",
            f"--model {model:.80}" if model else "leave --model out",
        )
    return checkpoint
