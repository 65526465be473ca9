"""The program of algorithms that learn once from each unroll, for one process and for roles.

    alone:     collect unrolls -> learn -> (way back) evaluate -> metrics -> checkpoint
    in roles:  actors ──unrolls, oldest first──> learner ──weights by version, permits──> actors
                                    learner ──weights──> evaluator ──returns──> learner

Only the learner writes files. Any node may be killed: actors and the evaluator are restarted, and
the learner resumes from its last checkpoint. If actors join and leave during the run, the learner
continues with those that are present (`with_range`). `workers/unroll_queue.py` decides how old the
weights of an unroll may be. Copy this program and change it.
"""

import time
from dataclasses import replace
from typing import Any

from muster import middleware
from muster.data.unrolls import make_slots, written_columns
from muster.framework import Context, Parallel, Task
from muster.recipes.algorithms import make_agent
from muster.recipes.graceful import StopRequest
from muster.recipes.harness import Harness
from muster.recipes.job import Job
from muster.recipes.replicas import (
    announcing,
    follow_stream,
    learners_shares,
    report_replicas,
    with_replicas,
)
from muster.recipes.result import RunResult
from muster.recipes.roles import begin_learner, evaluate, record_learner, with_range
from muster.recipes.speed import Speed, StreamWork
from muster.recipes.stream_sources import (
    ActorUnrolls,
    OwnUnrolls,
    actors_of,
    batch_slots,
    channel_capacity,
)
from muster.run import RunDirectory
from muster.seeding import derive_seed
from muster.workers.unroll_collector import UnrollCollector, unroll_plan
from muster.workers.unroll_flow import UnrollOutbox
from muster.workers.unroll_learner import UnrollLearner

ON_FAILURE = {
    "learner": "resume",
    "evaluator": "restart",
    "actor": "restart",
    "replica": "restart",
}


def train_by_stream(job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Train until a limit is reached: in this process, or on `job.workers` nodes.

    Args:
        job: The job of the run.
        run: The run's directory.
        stop: Tells whether a signal has asked the run to end.
    """
    if not job.on_nodes:
        job.arrive()
        with Task() as task:
            return learn(task, job, stop)
    acting, roles = node_roles(job)
    runner = Parallel.runner(
        roles=with_range(job, roles, acting),
        on_failure={role: ON_FAILURE[role] for role in roles},
        on_signal="learner",
        **job.runner_options(run),
    )
    result: RunResult = runner(main, job)[0]
    return result


def node_roles(job: Job) -> tuple[str, dict[str, int]]:
    """Return the role that acts, and the number of nodes of each role."""
    roles = {"learner": 1}
    if job.workers:
        roles |= {"evaluator": 1, "actor": len(actors_of(job))}
    return "actor", with_replicas(job, roles)


def main(job: Job) -> RunResult | None:
    """Run one node."""
    job.arrive()
    with Task() as task:
        # No node reads another's context: weights, unrolls and answers have their own channels.
        task.ctx.share("env_step")
        if task.router.role == "learner":
            return learn(task, job)
        be = {"actor": act, "evaluator": evaluate, "replica": follow_stream}
        be[str(task.router.role)](task, job)
        return None


def learn(task: Task, job: Job, stop: StopRequest | None = None) -> RunResult:
    """Learn from received unrolls, or from unrolls collected here; write the run's files."""
    started = time.monotonic() - task.router.age
    in_roles = job.workers > 0
    agent = job.make_learner()
    shares = learners_shares(job, agent)
    slots = batch_slots(job, agent)
    source: OwnUnrolls | ActorUnrolls
    source = ActorUnrolls(task, job, agent, slots) if in_roles else OwnUnrolls(job, agent, slots)
    resumed = begin_learner(task, job, agent, source)
    first_step = task.ctx.env_step
    source.begin()

    def state(ctx: Context) -> dict[str, Any]:
        return {"episodes": harness.episodes.state_dict(), **source.state_dict()}

    with Harness(task, job, agent, started, first_step, state, stop) as harness:
        steps = job.cfg.rows_of_update(job.options.num_envs)
        record_learner(task, job, harness, resumed, every=max(1_000, 4 * steps))
        announce = announcing(shares, lambda *work: (written_columns(slots), *work))
        learner = UnrollLearner(agent, slots, shares, announce)
        speed = Speed(StreamWork(job, agent, source, learner, slots.plan), job, first_step)
        task.use_step_wrapper(speed)
        gather = middleware.receive_unrolls if in_roles else middleware.collect_unrolls
        task.use(gather(source, steps))
        task.use(middleware.learn_unrolls(learner, source, steps))
        task.use(report_replicas(shares))
        harness.limit()
        result = harness.train()
    source.close()
    hurry = harness.stop.is_requested()
    return harness.finish(replace(result, **speed.measured(hurry=hurry)))


def act(task: Task, job: Job) -> None:
    """Collect unrolls with the newest weights."""
    router, cfg = task.router, job.cfg
    seed = derive_seed(job.options.seed, "actor", router.node_id, router.incarnation)
    agent = make_agent(job.algo, cfg, job.spaces(), seed)
    envs = job.make_envs(job.options.num_envs, seed)
    slots = make_slots(unroll_plan(agent, cfg.unroll, job.options.num_envs, 1))
    collector = UnrollCollector(agent, envs, slots, seed)
    outbox = UnrollOutbox(router.node_id, router.incarnation, channel_capacity(job))
    task.use(middleware.act_unrolls(collector, written_columns(slots), outbox, agent))
    task.run()
    collector.close()
