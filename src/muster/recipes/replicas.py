"""Several learners in one run: which nodes they are, and the programs of the leader and replicas.

    learners_shares(job, agent)   computes the shares of a batch; None if batches are not cut
    follow_replay, follow_stream  the programs of a replica: the learner's updates, nothing else

docs/learners.md explains why the result has the same bits for any number of learners.
"""

from collections.abc import Callable
from typing import Any

from muster.data.unrolls import written_columns
from muster.framework import Context, Middleware, Task
from muster.nets import NonFiniteError
from muster.nets.shares import Shares, SharesInTurn
from muster.recipes.job import Job
from muster.recipes.stream_sources import batch_slots
from muster.workers import Learner
from muster.workers.replicas import (
    FollowingShares,
    LeadingShares,
    NewLeaderError,
    RunOverError,
)
from muster.workers.unroll_learner import UnrollLearner


def replicas_of(job: Job) -> range:
    """Return the ids of the nodes that are replicas of the learner: the last ones."""
    first = max(1, job.workers)
    return range(first, first + job.replicas)


def with_replicas(job: Job, roles: dict[str, int]) -> dict[str, int]:
    """Return the roles of a run, with replicas after all others."""
    return {**roles, "replica": job.replicas} if job.replicas else roles


def learners_shares(job: Job, agent: Any) -> Shares | None:
    """Return the object that computes the shares of a batch; None if batches are not cut."""
    options = job.options
    if options.learners is None:
        return None
    if not job.replicas:
        return SharesInTurn(options.learner_slots)
    return LeadingShares(replicas_of(job), options.learner_slots, agent.parts)


def announcing(shares: Shares | None, work: Callable[..., Any]) -> Callable[..., None] | None:
    """Return the function that sends the next batch to replicas; None if there are none.

    Args:
        shares: The learner's shares.
        work: Makes the message from the arguments of an update.
    """
    if not isinstance(shares, LeadingShares):
        return None
    leading = shares
    return lambda *given: leading.begin(work(*given))


def report_replicas(shares: Shares | None) -> Middleware:
    """Log the fraction of the work that replicas have done, if there are any."""

    def _report_replicas(ctx: Context) -> None:
        if isinstance(shares, LeadingShares):
            ctx.metrics["train/by_replicas"] = shares.by_replicas

    return _report_replicas


def work_of_replay(agent: Any) -> Callable[[Any], Any]:
    """Return a function that makes the message of a batch: with the update's random state."""
    return lambda batch: (batch, agent.random_state())


def follow_replay(task: Task, job: Job) -> None:
    """Repeat the updates of a learner that learns from replay."""
    agent = _replica(task, job)
    shares = _following(task, job)
    agent.cut_batches(shares)
    learner = Learner(agent)

    def learn(work: Any) -> None:
        batch, random_state = work
        if random_state is not None:
            agent.load_random_state(random_state)
        learner.train(batch)

    _follow(task, shares, agent, learn)


def follow_stream(task: Task, job: Job) -> None:
    """Repeat the updates of a learner that learns from unrolls."""
    agent = _replica(task, job)
    shares = _following(task, job)
    slots = batch_slots(job, agent)
    learner = UnrollLearner(agent, slots, shares)

    def learn(work: Any) -> None:
        columns, cut, env_step = work
        for name, column in written_columns(slots).items():
            column[:] = columns[name]
        learner.learn(cut, env_step)

    _follow(task, shares, agent, learn)


def _replica(task: Task, job: Job) -> Any:
    """Make the same agent as the learner's, on its own device if there are several."""
    return job.make_learner(member=1 + replicas_of(job).index(task.router.node_id))


def _following(task: Task, job: Job) -> FollowingShares:
    router = task.router
    slots = job.options.learner_slots
    return FollowingShares(router.node_id, replicas_of(job), slots, router.incarnation)


def _follow(task: Task, shares: FollowingShares, agent: Any, learn: Callable[[Any], None]) -> None:
    def follow(ctx: Context) -> None:
        work = shares.next(agent.load_parts)
        if work is not None:
            try:
                learn(work)
            except (NewLeaderError, RunOverError):  # the next update starts from the leader's state
                return
            except NonFiniteError:  # the leader finds it too, and ends the run with its name
                return

    task.use(follow)
    task.run()
