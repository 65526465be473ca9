"""Sources of a learner's unrolls: its own environments, or actors.

OwnUnrolls     collects a batch with the current weights, in this process, into the batch itself
ActorUnrolls   receives unrolls from nodes, the oldest first, and sends them weights
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.data.slots import Slots
from muster.data.unrolls import CutEpisodes, make_slots, put_unroll
from muster.envs.step_metrics import MetricSums, added
from muster.framework import Task
from muster.recipes.job import Job
from muster.run import Checkpoint
from muster.workers.unroll_collector import UnrollCollector, unroll_plan
from muster.workers.unroll_flow import UnrollInbox


@dataclass(frozen=True, slots=True)
class UnrollBatch:
    """The facts about a batch besides its columns."""

    cut: Sequence[CutEpisodes]
    """Truncated episodes of each unroll."""
    episodes: list[tuple[float, float]]
    """Return and length of each episode that ended in the batch."""
    lags: Sequence[int]
    """The age of each unroll's weights, in versions."""
    waiting: int
    """Unrolls that had arrived when the batch was taken, besides its own."""
    metrics: MetricSums = field(default_factory=dict)
    """Sums of the environment's own metrics in the batch."""


def actors_of(job: Job) -> range:
    """Return the ids of the nodes that act: the learner and the evaluator come first."""
    return range(2, job.workers)


def channel_capacity(job: Job) -> int:
    """Return how many unrolls an actor may have sent that have not been received.

    If actors may leave, this is the number that a single remaining actor may have in flight.
    """
    capacity: int = job.cfg.in_flight(1 if job.elastic else len(actors_of(job)))
    return capacity


def batch_slots(job: Job, agent: Any) -> Slots:
    """Return memory for one batch, with one slot per unroll."""
    cfg = job.cfg
    return make_slots(unroll_plan(agent, cfg.unroll, job.options.num_envs, cfg.batch_unrolls))


class OwnUnrolls:
    """Collects in the learner's own process.

    Args:
        job: The job of the run.
        agent: The agent that acts.
        slots: Memory for a batch.
    """

    processes = 1
    """Number of processes that share the work: this one."""

    def __init__(self, job: Job, agent: Any, slots: Slots) -> None:
        envs = job.make_envs(job.options.num_envs)
        self._collector = UnrollCollector(agent, envs, slots, job.options.seed)
        self._unrolls = range(slots.plan.slots)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state from a checkpoint; one of several nodes has no state of actors."""
        if "actor" in checkpoint.parts:
            self._collector.load_state_dict(checkpoint.parts["actor"])

    def begin(self) -> None:
        """Do nothing: the actor uses the learner's weights."""

    def fill(self) -> UnrollBatch:
        """Collect a batch."""
        found = [self._collector.collect(slot) for slot in self._unrolls]
        episodes = [each for unroll in found for each in unroll.episodes]
        own = added(each.metrics for each in found)
        return UnrollBatch([each.cut for each in found], episodes, [0] * len(found), 0, own)

    def learnt(self) -> None:
        """Do nothing: the actor uses the learner's weights."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint."""
        return {"actor": self._collector.state_dict()}

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds spent in the environments, and on choosing actions."""
        return self._collector.actor.env_seconds, self._collector.actor.act_seconds

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()


class ActorUnrolls:
    """Receives unrolls from nodes of the role `actor`, and sends them weights.

    Args:
        task: The learner's task.
        job: The job of the run.
        agent: The agent that learns.
        slots: Memory for a batch.
    """

    seconds = 0.0, 0.0
    """Seconds in environments and on actions: none in this process."""

    def __init__(self, task: Task, job: Job, agent: Any, slots: Slots) -> None:
        self._agent = agent
        self._slots = slots
        self._job = job
        self._session = task.router.incarnation
        self._inbox: UnrollInbox

    @property
    def processes(self) -> int:
        """Number of processes that share the work: the learner and the actors."""
        return 1 + self._job.present("actor", len(actors_of(self._job)))

    def resume(self, checkpoint: Checkpoint) -> None:
        """Do nothing: actors have no state."""

    def begin(self) -> None:
        """Send the first weights to the actors."""
        actors, cfg = actors_of(self._job), self._job.cfg
        self._inbox = UnrollInbox(
            self._agent.policy(),
            actors,
            cfg.batch_unrolls,
            cfg.in_flight,
            channel_capacity(self._job),
            cfg.max_lag,
            self._session,
        )

    def fill(self) -> UnrollBatch | None:
        """Wait for a batch; None if the run finishes first."""
        found = self._inbox.receive()
        if found is None:
            return None
        unrolls = [each.content for each in found]
        for slot, unroll in enumerate(unrolls):
            put_unroll(self._slots, slot, unroll.columns)
        return UnrollBatch(
            [each.cut for each in unrolls],
            [episode for each in unrolls for episode in each.episodes],
            self._inbox.queue.lags(),
            len(self._inbox.queue),
            added(each.metrics for each in unrolls),
        )

    def learnt(self) -> None:
        """Send the new weights to the actors."""
        self._inbox.learnt(self._agent.policy())

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint: none, as actors have no state."""
        return {}

    def close(self) -> None:
        """Do nothing: nothing is open."""
