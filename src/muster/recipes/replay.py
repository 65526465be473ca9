"""The program of algorithms that learn from replay, for one process and for roles.

    alone:     collect -> replay -> learn -> (way back) evaluate -> metrics -> checkpoint
    in roles:  actors ──fragments──> replay ──batches──> learner ──weights, by version──> actors
                                              learner ──weights──> evaluator ──returns──> learner

With `--replay-shards K`, replay is on K more nodes, and the learner asks them for batches; with
`--learners K`, K - 1 more nodes compute gradients (docs/learners.md). Only the learner writes
files. Any node may be killed: actors, the evaluator and shards are restarted (a restarted shard is
empty), and the learner resumes from its last checkpoint. If actors join and leave during the run,
the learner continues with those that are present (`with_range`). Copy this program and change it.
"""

import time
import warnings
from dataclasses import replace
from typing import Any

from muster import middleware
from muster.errors import MusterWarning
from muster.flow import ParameterServer
from muster.framework import Context, Parallel, Task
from muster.recipes.algorithms import make_agent
from muster.recipes.graceful import StopRequest
from muster.recipes.harness import Harness
from muster.recipes.job import Job
from muster.recipes.replay_places import (
    ON_FAILURE,
    envs_of_actor,
    replay_to_send_to,
    roles_of,
    shard_of_replay,
    steps_of_fragment,
)
from muster.recipes.replay_sources import Actors, OwnActor
from muster.recipes.replicas import (
    announcing,
    follow_replay,
    learners_shares,
    report_replicas,
    with_replicas,
    work_of_replay,
)
from muster.recipes.result import RunResult
from muster.recipes.roles import begin_learner, evaluate, record_learner, with_range
from muster.recipes.speed import ReplayWork, Speed
from muster.run import RunDirectory
from muster.seeding import derive_seed
from muster.workers import Collector, Learner


def train_by_replay(job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
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
        on_signal="learner",  # the learner saves the replay shards before it ends them
        **job.runner_options(run),
    )
    results: list[Any] = runner(main, job)
    result: RunResult = results[0]
    return result


def node_roles(job: Job) -> tuple[str, dict[str, int]]:
    """Return the role that acts, and the number of nodes of each role."""
    return "actor", with_replicas(job, roles_of(job))


def main(job: Job) -> RunResult | None:
    """Run one node."""
    job.arrive()
    with Task() as task:
        # No node reads another's context: weights, experience and answers have their own channels.
        task.ctx.share("env_step")
        if task.router.role == "learner":
            return learn(task, job)
        be = {"actor": act, "evaluator": evaluate, "replay": hold, "replica": follow_replay}
        be[str(task.router.role)](task, job)
        return None


def learn(task: Task, job: Job, stop: StopRequest | None = None) -> RunResult:
    """Learn from received experience, or from experience collected here; write the run's files."""
    started = time.monotonic() - task.router.age
    agent = job.make_learner()
    source: OwnActor | Actors
    source = Actors(task, job, agent) if job.workers else OwnActor(job, agent)
    shares = learners_shares(job, agent)
    if shares is not None:
        agent.cut_batches(shares)
    resumed = begin_learner(task, job, agent, source)
    first_step = source.begin()

    def state(ctx: Context) -> dict[str, Any]:
        parts = {"episodes": harness.episodes.state_dict(), **source.state_dict()}
        if job.options.save_replay:
            replay = source.buffer.state_dict()
            if replay is not None:
                parts["replay"] = replay
            else:
                warnings.warn(
                    f"the checkpoint of step {ctx.env_step} has no replay: the run failed "
                    "before all shards had sent theirs; a resumed run begins with an empty one",
                    MusterWarning,
                    stacklevel=1,
                )
        return parts

    with Harness(task, job, agent, started, first_step, state, stop) as harness:
        record_learner(task, job, harness, resumed)
        learner = Learner(agent, announce=announcing(shares, work_of_replay(agent)))
        speed = Speed(ReplayWork(job, agent, source, learner), job, first_step)
        task.use_step_wrapper(speed)
        task.use(source.middleware())
        task.use(middleware.train(learner, source.buffer, source.updates, agent.beta))
        task.use(source.after_learning())
        task.use(report_replicas(shares))
        harness.limit()
        result = harness.train()
    source.close()
    hurry = harness.stop.is_requested()
    return harness.finish(replace(result, **speed.measured(hurry=hurry)))


def act(task: Task, job: Job) -> None:
    """Collect experience with the newest weights."""
    router = task.router
    seed = derive_seed(job.options.seed, "actor", router.node_id, router.incarnation)
    envs = job.make_envs(job.options.num_envs, seed)
    spaces = envs.single_observation_space, envs.single_action_space
    agent = make_agent(job.algo, job.cfg, spaces, seed)
    collector = Collector(agent, envs, steps=steps_of_fragment(job))
    server = ParameterServer(home="role.learner")
    buffer = replay_to_send_to(job, spaces, router)

    def epsilon(env_step: float) -> Any:
        mine, total = envs_of_actor(job, router)  # both change as actors join and leave
        return agent.epsilon_of(env_step, mine, total)

    task.use(middleware.act(collector, buffer, server, agent, epsilon))
    task.run()
    collector.close()


def hold(task: Task, job: Job) -> None:
    """Hold one shard of replay."""
    task.use(middleware.serve(shard_of_replay(job, job.spaces(), task.router)))
    task.run()
