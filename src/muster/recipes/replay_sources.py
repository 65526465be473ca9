"""Sources of a replay learner's experience: its own environments, or actors.

OwnActor   collects as many steps as one round of updates needs, in this process
Actors     receives experience from nodes, as fast as it may be learnt, and sends them weights
"""

import math
from typing import Any

from muster import middleware
from muster.data import ReplayBuffer, ShardedReplay
from muster.flow import ParameterServer
from muster.framework import Middleware, Task
from muster.recipes.job import Job
from muster.recipes.replay_places import (
    buffer_alone,
    load_replay,
    replay_to_learn_from,
    roles_of,
    steps_of_fragment,
)
from muster.run import Checkpoint
from muster.workers import Collector


class OwnActor:
    """Collects in the learner's own process.

    Args:
        job: The job of the run.
        agent: The agent that acts.
    """

    def __init__(self, job: Job, agent: Any) -> None:
        self._agent = agent
        steps = max(1, job.cfg.train_every // job.options.num_envs)
        self._collector = Collector(agent, job.make_envs(job.options.num_envs), steps)
        self.buffer = buffer_alone(job, (agent.obs_space, agent.action_space))
        """The buffer that the learner samples from."""
        self._cfg = job.cfg
        self._steps_each_loop = steps * job.options.num_envs

    def updates(self, env_step: int) -> int:
        """Return the number of gradient steps of a loop that ends at this environment step."""
        due: int = self._cfg.updates_between(env_step - self._steps_each_loop, env_step)
        return due

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state from a checkpoint."""
        parts = checkpoint.parts
        if "replay" in parts:
            self.buffer.load_state_dict(parts["replay"])
        if "collector" in parts:
            self._collector.load_state_dict(parts["collector"])
            self.buffer.cut_episodes(self._collector.restarted)
        else:  # the run had several nodes, whose episodes ended with them
            self._collector.envstep = int(checkpoint.counters["env_step"])
            self.buffer.cut_episodes()

    def begin(self) -> int:
        """Return the number of environment steps so far."""
        return self._collector.envstep

    def middleware(self) -> Middleware:
        """Return the middleware that fills the buffer."""
        envs = range(self.buffer.num_envs)
        return middleware.collect(
            self._collector,
            self.buffer,
            lambda env_step: self._agent.epsilon_of(env_step, envs, len(envs)),
        )

    def after_learning(self) -> Middleware:
        """Return the middleware after the updates: a no-op, as the actor shares the weights."""
        return lambda ctx: None

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint, besides replay."""
        return {"collector": self._collector.state_dict()}

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds spent in the environments, and on choosing actions."""
        return self._collector.actor.env_seconds, self._collector.actor.act_seconds

    @property
    def processes(self) -> int:
        """Number of processes that share the work: this one."""
        return 1

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()


class Actors:
    """Receives experience from nodes of the role `actor`, and sends them weights.

    Args:
        task: The learner's task.
        job: The job of the run.
        agent: The agent that learns.
    """

    def __init__(self, task: Task, job: Job, agent: Any) -> None:
        cfg = job.cfg
        self._agent = agent
        self._job = job
        self._server = ParameterServer(home="role.learner")
        self._batch_size: int = cfg.batch_size
        self._steps_before = 0
        spaces = agent.obs_space, agent.action_space
        self.buffer: ReplayBuffer | ShardedReplay = replay_to_learn_from(job, spaces, task.router)
        """The buffer that the learner samples from."""
        steps = steps_of_fragment(job) * job.options.num_envs
        self._updates: int = max(1, math.floor(steps * cfg.updates_per_step_exactly()))

    @property
    def processes(self) -> int:
        """Number of processes that share the work: the learner and the actors."""
        return 1 + self._job.present("actor", roles_of(self._job)["actor"])

    def updates(self, env_step: int) -> int:
        """Return the number of gradient steps of a loop: constant, as actors keep pace with it."""
        return self._updates

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state from a checkpoint."""
        if "replay" in checkpoint.parts:
            load_replay(self.buffer, checkpoint.parts["replay"])
        self._steps_before = int(checkpoint.counters["env_step"]) - self.buffer.inserted

    def begin(self) -> int:
        """Send the first weights to the actors, and return the environment steps so far."""
        limiter = self.buffer.limiter
        assert limiter is not None
        # The number of samples taken from a restored buffer, up to rounding.
        due = max(0, round((self.buffer.inserted - limiter.min_size) * limiter.ratio))
        limiter.inserts, limiter.samples = self.buffer.inserted, due
        steps = self._steps_before + self.buffer.inserted
        self._server.push(self._weights(), env_step=steps, train_iter=self._agent.train_iter)
        return steps

    def middleware(self) -> Middleware:
        """Return the middleware that fills the buffer."""
        samples = self._updates * self._batch_size
        return middleware.receive(self.buffer, samples, self._steps_before)

    def after_learning(self) -> Middleware:
        """Return the middleware after the updates: it sends the new weights to actors."""
        return middleware.push_weights(self._server, self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint, besides replay: actors have no state."""
        return {}

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds in environments and on actions: none in this process."""
        return 0.0, 0.0

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _weights(self) -> Any:
        return self._agent.parts()["policy"]
