"""`GradientWorker`: collects its own short rollouts, and computes one gradient from each.

    weights of the learner -> rollout -> advantages -> Contribution: gradient, steps, episodes

A worker changes no weights.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.algos.in_step import InStepAgent
from muster.data.unrolls import make_slots
from muster.envs import VectorEnv
from muster.flow import register_dataclass
from muster.workers.episode_log import EndedEpisodes
from muster.workers.following import value_what_follows
from muster.workers.rollout_rows import rollout_of
from muster.workers.unroll_collector import UnrollCollector, unroll_plan


@register_dataclass
@dataclass(frozen=True)
class Contribution:
    """The result of one rollout of a worker."""

    gradient: Any
    """In the form that the learner applies, here a flat vector; None if nothing is to be learnt."""
    stats: NDArray[np.float64]
    """Means of the agent's `stats`."""
    steps: int
    """Environment steps of the rollout."""
    episodes: EndedEpisodes
    """Episodes that ended in these steps."""
    train_iter: int
    """Update count of the weights that the gradient was computed for."""


class GradientWorker:
    """Collects rollouts and computes gradients.

    Args:
        agent: Acts, and computes the gradient. The learner changes its weights.
        envs: The environments; reset here.
        seed: Seed of this worker.
    """

    def __init__(self, agent: InStepAgent, envs: VectorEnv, seed: int) -> None:
        self.agent = agent
        self.plan = unroll_plan(agent, agent.cfg.rollout, envs.num_envs, 1)
        """One slot with all environments."""
        self._slots = make_slots(self.plan)
        self.collector = UnrollCollector(agent, envs, self._slots, seed)
        """Collects the steps."""
        self._rollout = rollout_of(self._slots)
        # A recurrent network learns from whole sequences, so each row is a sequence number.
        rows = envs.num_envs if self.plan.state_width else self.steps
        self._rows = np.arange(rows)
        self._gradient = np.zeros(agent.weights.vector.size, np.float32)
        self._stats = np.zeros(len(agent.stats))
        self.learn_seconds = 0.0
        """Seconds spent on gradients."""

    @property
    def steps(self) -> int:
        """Environment steps of one rollout."""
        return self.plan.steps * self.plan.envs

    def follow(self, weights: dict[str, Any], train_iter: int) -> None:
        """Load weights that the learner changed, after `train_iter` updates in all."""
        self.agent.load_policy(weights)
        self.agent.train_iter = train_iter

    def contribute(self, env_step: int) -> Contribution:
        """Collect one rollout, and return its gradient.

        Args:
            env_step: Environment steps of all workers so far, for the schedules of the loss.
        """
        agent, slots = self.agent, self._slots
        cut, episodes, metrics = self.collector.collect()
        started = time.perf_counter()
        value_what_follows(agent.net, slots, [cut], self.collector.memory)
        agent.prepare(slots, slots.reward, slice(0, self.plan.envs))
        terms = agent.terms(env_step, self.steps)
        agent.gradient(self._rollout, self._rows, terms, self._gradient, self._stats)
        self.learn_seconds += time.perf_counter() - started
        ended = EndedEpisodes.of(episodes, metrics)
        # Copies, because they may wait to be sent while the next ones are computed.
        gradient, stats = self._gradient.copy(), self._stats.copy()
        return Contribution(gradient, stats, self.steps, ended, agent.train_iter)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next rollout, except the weights."""
        return self.collector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.collector.load_state_dict(dict(state))

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()
