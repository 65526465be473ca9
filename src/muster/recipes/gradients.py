"""The program of algorithms whose workers send gradients, for one process and for roles.

    alone:     collect -> gradient -> apply -> (way back) evaluate -> metrics -> checkpoint
    in roles:  workers ──gradients──> learner: apply, each once ──weights, by version──> workers
                                      learner ──weights──> evaluator ──returns──> learner

A worker never waits for other workers, only for weights newer than those of its last gradient. Only
the learner writes files. Killed workers and a killed evaluator are restarted; a killed learner
resumes from its last checkpoint. Workers may join and leave during the run (`with_range`). Copy
this program and change it.
"""

import time
from dataclasses import replace
from typing import Any

from muster import middleware
from muster.flow import ParameterServer
from muster.framework import Context, Middleware, Parallel, Task
from muster.recipes.graceful import StopRequest
from muster.recipes.gradient_sources import OwnWorker, Workers
from muster.recipes.harness import Harness
from muster.recipes.job import Job
from muster.recipes.result import RunResult
from muster.recipes.roles import begin_learner, evaluate, record_learner, with_range
from muster.recipes.speed import Speed, StreamWork
from muster.run import RunDirectory
from muster.seeding import derive_seed
from muster.workers.gradient_worker import GradientWorker

ON_FAILURE = {"learner": "resume", "evaluator": "restart", "worker": "restart"}


def train_by_gradients(job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Train until a limit is reached: in this process, or on `job.workers` nodes."""
    if not job.workers:
        job.arrive()
        with Task() as task:
            return learn(task, job, stop)
    acting, roles = node_roles(job)
    runner = Parallel.runner(
        roles=with_range(job, roles, acting),
        on_failure=ON_FAILURE,
        on_signal="learner",
        threads=1,
        **job.runner_options(run),
    )
    result: RunResult = runner(main, job)[0]
    return result


def node_roles(job: Job) -> tuple[str, dict[str, int]]:
    """Return the role that acts, and the number of nodes of each role."""
    return "worker", {"learner": 1, "evaluator": 1, "worker": job.workers - 2}


def main(job: Job) -> RunResult | None:
    """Run one node."""
    job.arrive()
    with Task() as task:
        task.ctx.share("env_step")  # weights, gradients and answers have their own channels
        if task.router.role == "learner":
            return learn(task, job)
        {"worker": work, "evaluator": evaluate}[str(task.router.role)](task, job)
        return None


def learn(task: Task, job: Job, stop: StopRequest | None = None) -> RunResult:
    """Apply gradients, received or computed here, and write the run's files."""
    started = time.monotonic() - task.router.age
    agent = job.make_learner()
    source: OwnWorker | Workers
    source = Workers(job, agent) if task.router.is_active else OwnWorker(job, agent)
    resumed = begin_learner(task, job, agent, source)
    ctx = task.ctx
    ctx.keep("episode")
    ctx.episode = 0 if resumed is None else int(resumed.parts["budget"]["episode"])
    first_step = ctx.env_step

    def state(ctx: Context) -> dict[str, Any]:
        return {
            "episodes": harness.episodes.state_dict(),
            "budget": {"episode": ctx.episode},
            **source.state_dict(),
        }

    with Harness(task, job, agent, started, first_step, state, stop) as harness:
        record_learner(task, job, harness, resumed)
        speed = Speed(StreamWork(job, agent, source, source, source.plan), job, first_step)
        task.use_step_wrapper(speed)
        source.publish(agent, ctx)
        task.use(source.middleware())
        task.use(middleware.apply_gradients(agent))
        task.use(lambda ctx: source.publish(agent, ctx))
        task.use(end_after(job.cfg.episodes))
        harness.limit()
        result = harness.train()
    source.close()
    hurry = harness.stop.is_requested()
    return harness.finish(replace(result, **speed.measured(hurry=hurry)))


def work(task: Task, job: Job) -> None:
    """Compute gradients with the newest weights."""
    router = task.router
    seed = derive_seed(job.options.seed, "worker", router.node_id, router.incarnation)
    envs = job.make_envs(job.options.num_envs, seed)
    spaces = envs.single_observation_space, envs.single_action_space
    agent = job.make_learner(spaces, seed, member=router.node_id)
    worker = GradientWorker(agent, envs, seed)
    task.use(middleware.contribute(worker, ParameterServer(home="role.learner")))
    task.run()
    worker.close()


def end_after(episodes: int | None) -> Middleware:
    """End the run after this many episodes of all workers together; None for no limit."""

    def _end_after(ctx: Context) -> None:
        ctx.episode += ctx.episodes.count
        if episodes is not None and ctx.episode >= episodes:
            ctx.finish, ctx.stopped_by = True, "episodes"

    return _end_after
