"""PPO from start to end: the program behind `muster train ppo`. Copy it and change it.

    collect -> learn -> (way back) evaluate -> agree -> log -> checkpoint

The same program is the whole run with `--workers 0`, and each of N equal workers with `--workers N`
(docs/ppo.md). The first worker also evaluates and writes the files.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from muster import middleware
from muster.algos.ppo import PARTS, PPO
from muster.framework import Context, Parallel, Task
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job, result_of
from muster.recipes.keeping import counters_of, keep_best, meta_of
from muster.recipes.metric_sinks import metric_sinks
from muster.recipes.progress import Progress, opened
from muster.recipes.result import RunResult
from muster.recipes.speed import Speed
from muster.run import MetricsWriter, RunDirectory
from muster.workers import Evaluator, SlotWorker
from muster.workers.episode_log import EpisodeLog

MAX_RESTARTS = 100
"""How often a worker may be replaced; living for a minute makes up for it."""


def train_ppo(job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Train until a limit is reached: in this process, or in `job.workers` others."""
    if job.workers == 0:
        return main(job, stop)
    runner = Parallel.runner(
        job.workers,
        on_failure="restart",
        max_restarts=MAX_RESTARTS,
        threads=1,  # the last bit of a product may depend on how many there are
        log_dir=run.logs,
        engine=job.options.engine,
        address=job.options.address,
        quiet=job.options.quiet,
    )
    result: RunResult = runner(main, job)[0]
    return result


def main(job: Job, stop: StopRequest | None = None) -> RunResult:
    """Be one of the workers, or all there is.

    Args:
        job: What to do.
        stop: Tells when a signal asks to end. None on a node, whose parent has the signals.
    """
    cfg, options = job.cfg, job.options
    run = RunDirectory.join(job.run_dir)
    store = run.checkpoints
    job.arrive()
    with job.make_envs() as envs:
        spaces = envs.single_observation_space, envs.single_action_space
    agent = PPO(cfg, *spaces, options.seed)

    def begin() -> Mapping[str, Any] | None:
        start_from = job.checkpoint()
        if start_from is None:
            return None
        names = PARTS if options.resume else {"policy"}
        agent.load_parts({name: start_from.parts[name] for name in names})
        return start_from.parts["rollouts"] if options.resume else None

    worker = SlotWorker(
        agent, job.env, options.num_envs, options.seed, begin, backend=options.backend
    )
    first_step = worker.env_steps(worker.rollout)
    speed = Speed(worker, job)

    def save(ctx: Context) -> None:
        rollout = ctx.env_step // worker.env_steps(1)
        parts = {**agent.parts(), "rollouts": worker.state_dict(rollout)}
        middleware.check_state(parts)
        store.save(ctx.env_step, parts, counters_of(ctx), meta_of(job, ctx))
        store.prune()

    def save_best(ctx: Context) -> None:
        keep_best(run, job, agent.parts(), counters_of(ctx), ctx.evaluation.mean)

    def evaluation_took() -> float:  # the first worker says when time is up
        return evaluator.last_seconds if worker.is_first else 0.0

    with Task() as task, ExitStack() as stack:
        stack.callback(worker.close)
        stop = stop or StopRequest.by_parent(task)
        task.use_step_wrapper(speed)
        task.ctx.share("env_step")  # what workers need of each other is in their common memory
        task.ctx.keep("rollout", "env_step", "train_iter")
        task.ctx.rollout, task.ctx.env_step = worker.rollout, first_step
        task.ctx.train_iter = agent.train_iter
        if worker.is_first:
            episodes = EpisodeLog()
            episodes.state[:] = worker.episodes_noted(worker.rollout)
            goes_on = options.resume or worker.pace.taken_over
            written = first_step if goes_on else None
            writer = stack.enter_context(
                MetricsWriter(run, resume_from=written, sinks=metric_sinks(run, options))
            )
            task.use(Progress(job.env_steps, options.quiet, opened(job.terminal)))
            task.use(middleware.checkpoint(save, options.checkpoint_every))
            task.use(
                middleware.log_metrics(
                    writer,
                    episodes,
                    every=4 * worker.env_steps(1),
                    checkpoint_every=options.checkpoint_every,
                    note=lambda ctx: worker.note_episodes(ctx.rollout, episodes.state),
                )
            )
        task.use(middleware.agree(worker))
        if worker.is_first:
            evaluator = Evaluator(
                agent,
                job.env,
                episodes=options.eval_episodes,
                stop_at=options.stop_at,
                seed=options.seed,
                abandon=stop.is_requested,
                max_steps=options.eval_max_steps,
                seconds=lambda: job.evaluation_seconds(worker.started),
                env_kwargs={"backend": options.backend},
            )
            best = run.best.score()
            task.use(middleware.evaluate(evaluator, options.eval_every, save_best, best))
        task.use(middleware.collect_rollout(worker))
        task.use(middleware.learn(worker))
        task.use(middleware.guard(store.last))
        task.use(
            middleware.stop_after(job.env_steps, options.seconds, worker.started, evaluation_took)
        )
        task.use(stop.middleware())
        with middleware.guarded(task, store.last):
            ctx = task.run(end="agreed")
    result = replace(
        result_of(job, ctx, agent, worker.started, worker.first_step), stop_signal=stop.signal
    )
    result = replace(result, **speed.measured(hurry=stop.is_requested()))
    if job.workers == 0:
        return replace(result, policy=agent)
    if worker.is_first:
        run.write_result(result.as_json())
    return result
