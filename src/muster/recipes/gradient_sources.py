"""Sources of a learner's gradients: its own rollouts, or workers.

OwnWorker   computes one gradient in each loop, in this process
Workers     receives gradients from nodes, and sends them weights
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
    """Computes gradients in the learner's own process.

    Args:
        job: The job of the run.
        agent: The agent, which learns and acts.
    """

    processes = 1

    def __init__(self, job: Job, agent: Any) -> None:
        envs = job.make_envs(job.options.num_envs)
        self._worker = GradientWorker(agent, envs, job.options.seed)
        self.plan = self._worker.plan
        """The plan of a rollout."""

    def middleware(self) -> Middleware:
        """Return the middleware that computes gradients."""
        return middleware.compute_gradient(self._worker)

    def publish(self, agent: Any, ctx: Context) -> None:
        """Do nothing: the worker uses the learner's own weights."""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the worker, if the checkpoint has one: runs on several nodes save no worker."""
        if "worker" in checkpoint.parts:
            self._worker.load_state_dict(checkpoint.parts["worker"])

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint."""
        return {"worker": self._worker.state_dict()}

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds spent in the environments, and on choosing actions."""
        actor = self._worker.collector.actor
        return actor.env_seconds, actor.act_seconds

    @property
    def learn_seconds(self) -> float:
        """Seconds spent on gradients."""
        return self._worker.learn_seconds

    def close(self) -> None:
        """Close the environments."""
        self._worker.close()


class Workers:
    """Receives gradients from nodes of the role `worker`.

    Args:
        job: The job of the run.
        agent: The agent that learns.
    """

    def __init__(self, job: Job, agent: Any) -> None:
        self.plan = unroll_plan(agent, job.cfg.rollout, job.options.num_envs, 1)
        """The plan of a worker's rollout."""
        self._job = job
        self._server = ParameterServer(home="role.learner")
        self._first = 0
        """The first version that this learner published."""

    @property
    def processes(self) -> int:
        """Number of processes that share the work: the learner and the workers."""
        return 1 + self._job.present("worker", self._job.workers - 2)

    def middleware(self) -> Middleware:
        """Return the middleware that receives gradients."""
        return middleware.take_gradients(self._take)

    def publish(self, agent: Any, ctx: Context) -> None:
        """Send the current weights to the workers."""
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
    """The learner itself does none of this work."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _take(self) -> Sequence[Contribution]:
        """Return the gradients that have arrived; wait for the first.

        Gradients for weights of an earlier learner are dropped: the updates of that learner are
        lost, and with them the weights to which these gradients would be applied.
        """
        found: list[Contribution] = []
        while not found:
            items = self._server.take_gradients()
            if not items:
                break  # the run is over
            found = [each for version, each in items if version >= self._first]
        return found
