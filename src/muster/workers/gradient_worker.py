"""`GradientWorker`: collects a short rollout of its own, and turns it into one gradient.

    weights of somebody else -> rollout -> advantages -> Contribution: gradient, steps, episodes

It changes no weight. The rollout is a single slot in memory of this process alone, filled by the
same `Rollouts` as those of workers in step.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.algos.in_step import InStepAgent
from muster.data.slots import SlotPlan, slots_in
from muster.data.standing import Standing
from muster.envs import VectorEnv
from muster.flow import Team, register_dataclass
from muster.workers.episode_log import EndedEpisodes
from muster.workers.learner_group import rollout_of
from muster.workers.rollouts import Rollouts, book_fields, ended_in


@register_dataclass
@dataclass(frozen=True)
class Contribution:
    """What a worker made of one rollout."""

    gradient: Any
    """As who applies it takes it, here a flat vector; None if there was nothing to learn from."""
    stats: NDArray[np.float64]
    """Means of the agent's `stats`."""
    steps: int
    """Environment steps that it is made of."""
    episodes: EndedEpisodes
    """Those that ended in them."""
    train_iter: int
    """Updates of the weights that it was computed for."""


class GradientWorker:
    """Collects and differentiates.

    Args:
        agent: Acts, and computes the gradient. Somebody else changes its weights.
        envs: Where it acts; they are reset here.
        seed: Of this worker.
    """

    def __init__(self, agent: InStepAgent, envs: VectorEnv, seed: int) -> None:
        cfg = agent.cfg
        self.agent = agent
        self.plan = SlotPlan(
            agent.obs_space,
            agent.head.width,
            agent.head.dtype,
            agent.action_space,
            steps=cfg.rollout,
            envs=envs.num_envs,
            slots=1,
            state_width=agent.state_width,
            chunk=cfg.sequence if agent.state_width else 1,
        )
        """One slot of all environments."""
        fields = {
            **self.plan.fields(),
            **Standing.fields(self.plan),
            **book_fields(self.plan, None),
        }
        team = Team(fields, alone=True)
        self._team = team
        self._envs = envs
        envs.reset()
        self.rollouts = Rollouts(agent, envs, self.plan, team, range(1), seed)
        """Collects."""
        self._all = slice(0, envs.num_envs)
        self.rollouts.standing.write(0, envs, self._all)
        (self._slots,) = slots_in(self.plan, team)
        self._rollout = rollout_of(self._slots)
        self._rows = np.arange(self.plan.steps // self.plan.chunk * envs.num_envs)
        self._gradient = np.zeros((1, agent.weights.vector.size), np.float32)
        self._stats = np.zeros((1, len(agent.stats)))
        self.loop = 0
        """Rollouts so far."""
        self.learn_seconds = 0.0
        """Spent on gradients."""

    @property
    def steps(self) -> int:
        """Environment steps of one rollout."""
        return self.plan.steps * self.plan.envs

    def follow(self, weights: dict[str, Any], train_iter: int) -> None:
        """Go on with weights that others changed, after so many updates of all together."""
        self.agent.load_policy(weights)
        self.agent.train_iter = train_iter

    def contribute(self, env_step: int) -> Contribution:
        """Collect one rollout, and return its gradient.

        Args:
            env_step: Environment steps of all workers so far, for the schedules of the loss.
        """
        agent, loop = self.agent, self.loop
        self.rollouts.collect(loop)
        started = time.perf_counter()
        agent.prepare(self._slots, self._slots.reward, self._all)
        terms = agent.terms(env_step, self.steps)
        agent.gradients(self._rollout, self._rows[None], terms, self._gradient, self._stats)
        self.learn_seconds += time.perf_counter() - started
        self.loop += 1
        return Contribution(
            self._gradient[0].copy(),
            self._stats[0].copy(),
            self.steps,
            ended_in(self._team, loop),
            agent.train_iter,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides the next rollout but the weights."""
        standing = self.rollouts.standing
        return {
            "loop": self.loop,
            "envs": self._envs.state_dict(),
            "memory": standing.state[standing.page(self.loop)].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.loop = int(state["loop"])
        self._envs.load_state_dict(state["envs"])
        standing = self.rollouts.standing
        standing.write(self.loop, self._envs, self._all)
        standing.state[standing.page(self.loop)] = state["memory"]
        self.rollouts.remember(self.loop)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
