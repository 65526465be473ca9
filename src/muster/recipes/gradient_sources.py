"""Where the gradients of a learner come from: its own rollouts, or workers.

OwnWorker   computes one in each loop, in this process
Workers     receives what nodes send, and gives them weights
"""

from collections.abc import Sequence
from typing import Any

from muster import middleware
from muster.flow import ParameterServer
from muster.framework import Context, Middleware
from muster.recipes.job import Job
from muster.run import Checkpoint
from muster.workers.gradient_worker import Contribution, GradientWorker
from muster.workers.unroll_collector import unroll_plan


class OwnWorker:
    """Gradients that are computed in the learner's own process.

    Args:
        job: What to do.
        agent: What learns, and acts.
    """

    processes = 1

    def __init__(self, job: Job, agent: Any) -> None:
        envs = job.make_envs(job.options.num_envs)
        self._worker = GradientWorker(agent, envs, job.options.seed)
        self.plan = self._worker.plan
        """Of a rollout."""

    def middleware(self) -> Middleware:
        """Return what brings gradients."""
        return middleware.compute_gradient(self._worker)

    def publish(self, agent: Any, ctx: Context) -> None:
        """Do nothing: the worker has the learner's weights."""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue what a checkpoint holds; one of several nodes has nothing of their workers."""
        if "worker" in checkpoint.parts:
            self._worker.load_state_dict(checkpoint.parts["worker"])

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint has to hold."""
        return {"worker": self._worker.state_dict()}

    @property
    def seconds(self) -> tuple[float, float]:
        """Spent in the environments, and on choosing actions."""
        actor = self._worker.collector.actor
        return actor.env_seconds, actor.act_seconds

    @property
    def learn_seconds(self) -> float:
        """Spent on gradients."""
        return self._worker.learn_seconds

    def close(self) -> None:
        """Close the environments."""
        self._worker.close()


class Workers:
    """Gradients that nodes of the role `worker` send.

    Args:
        job: What to do.
        agent: What learns.
    """

    def __init__(self, job: Job, agent: Any) -> None:
        self.plan = unroll_plan(agent, job.cfg.rollout, job.options.num_envs, 1)
        """Of a worker's rollout."""
        self._job = job
        self._server = ParameterServer(home="role.learner")
        self._first = 0
        """The first version of this learner."""

    @property
    def processes(self) -> int:
        """That share the work: the learner and the workers."""
        return 1 + self._job.present("worker", self._job.workers - 2)

    def middleware(self) -> Middleware:
        """Return what brings gradients."""
        return middleware.take_gradients(self._take)

    def publish(self, agent: Any, ctx: Context) -> None:
        """Give the workers the weights as they are now."""
        version = self._server.push(
            agent.policy(), env_step=ctx.env_step, train_iter=agent.train_iter
        )
        self._first = self._first or version

    def resume(self, checkpoint: Checkpoint) -> None:
        """Do nothing: workers have no state."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: workers have no state."""
        return {}

    seconds = (0.0, 0.0)
    learn_seconds = 0.0
    """Of all that, nothing is done here."""

    def close(self) -> None:
        """Nothing is open."""

    def _take(self) -> Sequence[Contribution]:
        """Return the gradients that are here, once there is one.

        But none for weights of a learner that is gone: its updates are lost, and with them what
        they would be added to.
        """
        found: list[Contribution] = []
        while not found:
            items = self._server.take_gradients()
            if not items:
                break  # the run is over
            found = [each for version, each in items if version >= self._first]
        return found
