"""The program of algorithms that collect and learn in step: PPO and similar ones.

    collect -> learn -> (way back) evaluate -> agree -> log -> checkpoint

With `--workers 0` this program is the whole run; with `--workers N` each of N equal workers runs it
(docs/ppo.md). The first worker also evaluates and writes the files. Copy it and change it.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from muster import middleware
from muster.framework import Context, Parallel, Task
from muster.framework.node import current_node
from muster.recipes.graceful import StopRequest
from muster.recipes.harness import Harness
from muster.recipes.job import Job, first_parts_of
from muster.recipes.result import RunResult
from muster.recipes.speed import InStepWork, Speed
from muster.run import RunDirectory
from muster.workers import SlotWorker

MAX_RESTARTS = 100
"""How often a worker may be replaced; a worker that lives for a minute resets the count."""


def train_in_step(job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Train until a limit is reached: in this process, or in `job.workers` others."""
    if job.workers == 0:
        return main(job, stop)
    runner = Parallel.runner(
        job.workers,
        on_failure="restart",
        max_restarts=MAX_RESTARTS,
        threads=1,  # the number of threads may change the last bit of a product
        **job.runner_options(run),
    )
    result: RunResult = runner(main, job)[0]
    return result


def node_roles(job: Job) -> tuple[str, dict[str, int]]:
    """Return the role that acts, and the number of nodes of each role: all are workers."""
    return "worker", {"worker": job.workers}


def main(job: Job, stop: StopRequest | None = None) -> RunResult:
    """Run one worker, or the whole run in one process.

    Args:
        job: The job of the run.
        stop: Tells whether a signal has asked the run to end. None on a node, whose parent
            receives the signals.
    """
    options = job.options
    job.arrive()
    node = current_node()
    agent = job.make_learner(member=0 if node is None else node.place.node_id)

    def begin() -> Mapping[str, Any] | None:
        start_from = job.checkpoint()
        if start_from is None:
            return None
        if not options.resume:
            agent.load_parts(first_parts_of(start_from))
            return None
        agent.load_parts({name: start_from.parts[name] for name in agent.parts()})
        return start_from.parts["rollouts"]

    worker = SlotWorker(
        agent, job.setup, options.num_envs, options.seed, begin, backend=options.backend
    )
    speed = Speed(InStepWork(worker, job), job, worker.env_steps(worker.rollout))

    def loops_until(ctx: Context) -> int:
        return int(ctx.env_step) // worker.env_steps(1)

    def state(ctx: Context) -> dict[str, Any]:
        rollouts = worker.state_dict(loops_until(ctx))
        middleware.check_state(rollouts)
        return {"rollouts": rollouts}

    def note(ctx: Context) -> None:
        worker.note_episodes(loops_until(ctx), harness.episodes.state)
        worker.note_metrics(loops_until(ctx), harness.episodes.metrics)

    with (
        Task() as task,
        Harness(task, job, agent, worker.started, worker.first_step, state, stop) as harness,
        closing(worker),
    ):
        task.use_step_wrapper(speed)
        task.ctx.share("env_step")  # workers exchange everything else through shared memory
        task.ctx.keep("rollout", "env_step", "train_iter")
        first_step = worker.env_steps(worker.rollout)
        task.ctx.rollout, task.ctx.env_step = worker.rollout, first_step
        task.ctx.train_iter = agent.train_iter
        if worker.is_first:
            episodes = harness.episodes
            episodes.state[:] = worker.episodes_noted(worker.rollout)
            episodes.metrics = worker.metrics_noted(worker.rollout)
            goes_on = options.resume or worker.pace.taken_over
            harness.record(
                first_step if goes_on else None,
                every=4 * worker.env_steps(1),
                note=note,
            )
        task.use(middleware.agree(worker))
        if worker.is_first:
            harness.evaluate()
        task.use(middleware.collect_rollout(worker))
        task.use(middleware.learn(worker))
        harness.limit()
        result = harness.train(end="agreed")
    hurry = harness.stop.is_requested()
    return harness.finish(replace(result, **speed.measured(hurry=hurry)))
