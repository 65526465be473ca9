"""`train`: takes the names of an algorithm and an environment, and returns a finished run."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from muster.engines.logs import say
from muster.envs import UnknownEnvError, make_envs
from muster.errors import OptionError, raised_at, summary
from muster.framework import Parallel
from muster.framework.signals import is_signal_exit
from muster.jit import compiled_before
from muster.nets.fused_kernels import act
from muster.nets.threads import one_torch_thread
from muster.recipes.algorithms import load, load_algorithm, nodes_of, program_of
from muster.recipes.backbone import first_parts, save_start, with_backbone
from muster.recipes.beforehand import check_beforehand
from muster.recipes.completing import complete, limit_reached, unstarted
from muster.recipes.env_options import WRAPPERS, setup_of
from muster.recipes.eval_env import check_eval_env
from muster.recipes.failure import RunError, keep_failure
from muster.recipes.given import as_written
from muster.recipes.graceful import StopRequest
from muster.recipes.hooks import HOOKS
from muster.recipes.job import Job
from muster.recipes.join_options import as_rank, check_alone, split_join
from muster.recipes.joining import hosting
from muster.recipes.memory import check_memory, check_shared_memory
from muster.recipes.models import load_model
from muster.recipes.pacing import Pacing
from muster.recipes.policy import LoadedPolicy, load_policy
from muster.recipes.progress import name_of_terminal
from muster.recipes.ranks import as_recipe, common_settings, to_hand_over
from muster.recipes.result import RunResult
from muster.recipes.run_plan import RunPlan, own_code_of, plan_run, to_write
from muster.recipes.settings import Settings
from muster.recipes.starting_point import checkpoint_to_resume, policy_to_start_from
from muster.recipes.worker_range import range_of
from muster.run import Checkpoint, RunDirectory
from muster.shown import shown


def train(
    algo: str | None = None,
    env: str | None = None,
    config: str | Path | None = None,
    **options: Any,
) -> RunResult:
    """Train an agent, in a run directory that is verified and can be resumed.

    Args:
        algo: Name of the algorithm: `ppo`, `impala`, `dqn` (README lists all), a registered one, or
            `module:name` of your own. A resumed run has its own.
        env: Id of the environment. A resumed run has its own.
        config: A file of options, such as the `config.yaml` of a run.
        **options: Fields of `TrainOptions` and of the algorithm's configuration. An option that is
            not given comes from the file, else from the preset for this environment, else from the
            defaults; in a resumed run, from the run.
    """
    return run_training(algo, env, config, options)


def run_training(
    algo: str | None,
    env: str | None,
    config: str | Path | None,
    options: dict[str, Any],
    pacing: Pacing | None = None,
) -> RunResult:
    """Train as `train` does; with `pacing`, only as far as a driver on another thread asks."""
    load_algorithm(algo)
    joined, options = split_join(as_written(options))
    if joined is not None:
        check_alone(options)
        if pacing is not None:
            raise OptionError(
                "a Trainer cannot join ranks",
                "the other ranks would wait for every step of this one",
                "muster.train(..., join=..., rank=..., world=...)",
            )
        if not joined.leads:
            from muster.recipes.following import follow

            return follow(joined, algo, env, options, config)
    plan = plan_run(algo, env, options, config)
    algo, env, settings = plan.algo, plan.env, plan.settings
    if joined is not None:
        settings = as_rank(algo, settings, joined)
    check_beforehand(settings, is_new=plan.resumption is None)
    if plan.resumption is None:
        settings = with_backbone(settings)
    load_model(settings.config.model)
    WRAPPERS.load(settings.options.wrapper)
    common = common_settings(to_write(replace(plan, settings=settings), None))
    try:
        # Report mistakes before anything is written.
        agent, backend = try_out(algo, env, settings)
    except UnknownEnvError as error:
        raise error.to_try("muster.train({!r}, {!r})", algo) from None
    HOOKS.load(settings.options.use)
    own_code = None if joined is not None else own_code_of(plan)
    settings = settings.on_backend(backend)
    plan = replace(plan, settings=settings.with_processes_of(plan.settings))
    stop = StopRequest() if pacing is None else pacing.stop
    start_from = None if plan.resumption else policy_to_start_from(plan, agent)
    backbone = None if plan.resumption else settings.options.backbone
    parts = None if backbone is None else first_parts(backbone, agent)
    with (
        hosting(joined, common, plan.resumption is not None) as ranks,
        stop.listening(),
        one_torch_thread(),
        _open_run(plan) as run,
    ):
        if plan.resumption is not None:
            start_from = checkpoint_to_resume(run, plan)
        if parts is not None:
            start_from = save_start(run, parts, {"algo": algo, "env": env})
        if start_from is not None:
            agent.load_parts({"policy": start_from.parts["policy"]})  # raises if it does not fit
        if plan.resumption is not None:
            run.note_start()
        job = Job(
            algo,
            env,
            settings.config,
            settings.options,
            settings.workers,
            str(run.path),
            terminal=name_of_terminal(),
            start_from=None if start_from is None else str(start_from.path),
            own_code=own_code,
            paced=pacing is not None,
            driver=None if pacing is None else pacing.link,
        )
        result = _train_in(run, plan, job, agent, start_from, stop, pacing, ranks)
    return with_policy(result, agent, settings)


def with_policy(result: RunResult, agent: Any, settings: Settings) -> RunResult:
    """Return the result with a policy that acts; a one-process run returns the agent itself."""
    if isinstance(result.policy, LoadedPolicy):
        return result
    setup = setup_of(result.env, settings.options)
    backend = settings.options.backend
    policy = LoadedPolicy(result.policy, agent.obs_space, result.env, backend, setup=setup)
    return replace(result, policy=policy)


def _train_in(
    run: RunDirectory,
    plan: RunPlan,
    job: Job,
    agent: Any,
    start_from: Checkpoint | None,
    stop: StopRequest,
    pacing: Pacing | None,
    ranks: Any,
) -> RunResult:
    """Train in an open run directory, and write the result."""
    reached = None
    if plan.resumption is not None and start_from is not None:
        reached = limit_reached(job, start_from)
    if not job.options.quiet:
        for line in _first_lines(plan, run, start_from, reached):
            say(line)
        if os.isatty(2) and not compiled_before(act):
            say("compiling for this processor, 10 to 30 s; later runs reuse the compiled code")
    written = to_write(plan, start_from)
    run.write_config(written)
    if ranks is not None:
        ranks.start(to_hand_over(job, written, start_from, reached))
    try:
        if reached is not None and start_from is not None:
            result = complete(job, run, agent, start_from, reached, stop)
        elif pacing is not None and not pacing.wait_to_begin(job, agent, start_from):
            result = unstarted(job, run, agent, start_from, stop)
        else:
            run.forget_result()
            recipe = program_of(job.algo) if ranks is None else as_recipe(ranks)
            result = _run(recipe, job, run, stop)
    except Exception as error:
        keep_failure(error, run)
        raise
    result = replace(result, stop_signal=stop.signal)
    run.write_result(result.as_json())
    return result


def resume(
    run: str | Path,
    config: str | Path | None = None,
    *,
    env: str | None = None,
    algo: str | None = None,
    **changes: Any,
) -> RunResult:
    """Resume a run, with the settings in its directory.

    Args:
        run: The run's directory.
        config: A file of options that change.
        env: The run's environment, needed only if it is `module:Id`: a file does not decide which
            code runs. The same holds for `model` and `algo`.
        algo: The run's algorithm, needed only if it is `module:name`.
        **changes: Options that change, such as `env_steps`, the new total. Options that identify
            the run (seed, network, environments, slots) cannot change.
    """
    return train(algo, env, config, run_dir=str(run), resume=True, **changes)


def _first_lines(
    plan: RunPlan, run: RunDirectory, start_from: Checkpoint | None, reached: str | None
) -> Iterator[str]:
    """Yield the directory of the run, how it resumes, and the meaning of a range of workers."""
    asked = range_of(plan.settings.options.workers)
    if asked is not None and plan.settings.elastic is None and reached is None:
        many = plan.settings.workers
        yield f"--workers {asked.low}..{asked.high} is {many} here: this machine's cores decide"
    if plan.resumption is None or start_from is None:
        yield f"run directory: {shown(run.path)}"
        return
    yield from plan.resumption.lines(start_from.step)
    if reached is not None:
        what = f"{start_from.step:,} steps" if reached == "steps" else "target"
        yield f"the run has reached its {what}: muster only completes its evaluation and result"
    elif plan.settings.options.save_replay and plan.settings.config.lacks_replay(start_from.parts):
        yield f"{shown(start_from.path)} has no replay: the run begins with an empty one"


def _run(recipe: Any, job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Run a recipe, and load the result that nodes have left in the run directory."""
    result: RunResult
    try:
        with stop.left_to_nodes() if job.on_nodes else nullcontext():
            result = recipe(job, run, stop)
    except (KeyboardInterrupt, SystemExit) as error:
        asked = stop.is_requested() or is_signal_exit(error)
        if not job.on_nodes and not asked:  # raised by the user's code
            raise RunError(
                f"the run ended with {summary(error)}",
                f"it comes from {raised_at(error)}, and there was no signal",
                "ctx.finish = True, which ends a run normally; or raise another exception",
            ) from error
        saved = run.read_result() if job.on_nodes else None
        left = None if saved is None else RunResult.from_json(saved)
        if left is None or left.stop_signal is None:
            raise
        result = left
        stop.signal = result.stop_signal
    if not job.on_nodes:
        return result
    # The last policy, as in one process; `load_policy(run)` returns the best one.
    last = run.checkpoints.last() or run.path
    return replace(result, policy=load_policy(last, model=job.cfg.model, env=job.env))


def try_out(algo: str, env: str, settings: Settings, prepare: bool = True) -> tuple[Any, Any]:
    """Validate combinations of settings; return an agent, and the environment's backend.

    Args:
        algo: Name of the algorithm.
        env: Id of the environment.
        settings: Settings of the run.
        prepare: Whether to start what nodes need, while this process makes the agent.

    Raises:
        OptionError: Settings contradict each other.
    """
    seed = settings.options.seed
    setup = setup_of(env, settings.options)
    with make_envs(setup, seed=seed, backend=settings.options.backend) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
        backend = envs.backend
    settings.config.check_actions(spaces[1])
    check_eval_env(env, settings.options, spaces)
    check_memory(settings, *spaces)
    if settings.on_nodes and prepare:  # nodes load torch while this process does
        where = settings.options
        warm = nodes_of(algo, isinstance(spaces[1], gym.spaces.Box))
        Parallel.prepare(warm, engine=where.engine, address=where.address)
    with one_torch_thread():
        agent = load(algo, "agent")(settings.config, *spaces, seed)
    check_shared_memory(settings, agent)
    return agent, backend


def _open_run(plan: RunPlan) -> RunDirectory:
    options = plan.settings.options
    if plan.resumption is not None:
        assert options.run_dir is not None
        return RunDirectory.open(options.run_dir, writable=True)
    return RunDirectory.create(options.run_dir, plan.env, plan.algo, options.seed)
