"""`UnrollLearner`: one update for each batch of unrolls, from any collectors and any weights.

one pass over all rows -> log-probabilities and values under the current weights
values after the last step of each unroll, and of the last states of truncated episodes
the agent corrects -> gradient of all rows -> step -> the normaliser learns the observations
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.data.slots import Slots, obs_parts
from muster.data.unrolls import CutEpisodes
from muster.nets.normalizer import ObsNorm
from muster.nets.shares import Shares, SharesInTurn, rows_of_shares
from muster.rl_utils.moments import Moments
from muster.workers.following import value_what_follows
from muster.workers.rollout_rows import rollout_of

Array = NDArray[Any]


class CorrectingAgent(Protocol):
    """The agent that learns from unrolls of older weights."""

    net: Any
    """A `PolicyNet` or a `RecurrentPolicy`."""
    weights: Any
    """`FlatParameters`."""
    adam: Any
    lr: Callable[[int], float]
    """Maps environment steps to the learning rate."""
    stats: tuple[str, ...]
    """Names of the metrics that `gradient` sums."""
    train_iter: int

    @property
    def metrics(self) -> tuple[str, ...]:
        """The entries of `stats` that are written."""

    @property
    def normalizer(self) -> ObsNorm | None:
        """The normaliser of observations (mean 0, standard deviation 1), if there is one."""

    def correct(self, slots: Slots, logp: NDArray[np.float32]) -> dict[str, float]:
        """Fill the columns advantage and target, and return metrics."""

    def terms(self, env_step: int, rows: int) -> Any:
        """Return the coefficients of the loss at a step, for batches of `rows` rows."""

    def gradient(self, rollout: Any, rows: Array, terms: Any, out: Array, stats: Array) -> None:
        """Write the gradient of the loss over some rows, and the sums of their metrics."""

    def step(self, grad: NDArray[np.float32]) -> float:
        """Move the weights against a gradient, and return its norm before clipping."""


class UnrollLearner:
    """Learns from batches of unrolls.

    Args:
        agent: The agent that learns.
        slots: Holds a batch, one slot per unroll.
        shares: Computes the gradient of a batch in shares; by default as one share.
        announce: Called with the arguments of `learn`, before it, so that replicas can do the same.
    """

    def __init__(
        self,
        agent: CorrectingAgent,
        slots: Slots,
        shares: Shares | None = None,
        announce: Callable[[Sequence[CutEpisodes], int], None] | None = None,
    ) -> None:
        self.learn_seconds = 0.0
        """Seconds spent on values, gradients and updates."""
        self.agent = agent
        self._slots = slots
        self._rollout = rollout_of(slots)
        plan = slots.plan
        self._now = np.zeros((plan.steps, plan.envs), np.float32)
        # A recurrent network learns from whole sequences, so each row is a sequence number.
        self._rows = np.arange(plan.envs if plan.state_width else plan.envs * plan.steps)
        self._shares = shares or SharesInTurn(1)
        self._announce = announce
        self._grads = [agent.weights.new_gradient() for _ in range(self._shares.members)]

    def learn(self, cut: Sequence[CutEpisodes], env_step: int) -> dict[str, float]:
        """Take one step along the gradient of the batch, and return its metrics.

        Args:
            cut: The truncated episodes of each unroll.
            env_step: Environment steps before this batch, for the schedules.
        """
        started = time.perf_counter()
        if self._announce is not None:
            self._announce(cut, env_step)
        agent, plan = self.agent, self._slots.plan
        self._value(cut)
        found = agent.correct(self._slots, self._now)
        terms = agent.terms(env_step, plan.steps * plan.envs)
        rows = [self._rows[part] for part in rows_of_shares(len(self._rows), len(self._grads))]

        def differentiate(share: int) -> tuple[float, ...]:
            stats = np.zeros(len(agent.stats))
            agent.gradient(self._rollout, rows[share], terms, self._grads[share], stats)
            return tuple(stats.tolist())

        stats = self._shares(differentiate, len(rows), self._grads)
        agent.adam.lr = agent.lr(env_step)
        norm = agent.step(self._grads[0])
        self._learn_norm()
        sums = dict(zip(agent.stats, map(math.fsum, zip(*stats, strict=True)), strict=True))
        self.learn_seconds += time.perf_counter() - started
        means = {name: sums[name] for name in agent.metrics}
        return {**means, **found, "grad_norm": norm, "lr": agent.adam.lr}

    def _value(self, cut: Sequence[CutEpisodes]) -> None:
        """Write log-probabilities and values of the batch under the current weights."""
        slots, net = self._slots, self.agent.net
        rows = self._rollout
        memory: tuple[Array, ...] = ()
        if slots.state is not None:
            memory = (slots.state[0].copy(), rows.first)  # type: ignore[assignment]  # both are there
        net.evaluate_actions(rows.obs, rows.action, self._now.reshape(-1), rows.value, *memory)
        if memory:  # values after an episode that ended with the last step are not used
            memory = (memory[0], np.zeros(slots.plan.envs, np.bool_))
        value_what_follows(net, slots, cut, memory)

    def _learn_norm(self) -> None:
        """Update the normaliser with the observations of this batch, for the next one."""
        normalizer = self.agent.normalizer
        if normalizer is None:
            return
        parts = obs_parts(self._rollout.obs)
        for key, norm in zip(normalizer.keys, normalizer.norms, strict=True):
            rows = parts["" if key is None else f".{key}"]
            found = Moments.of(rows.reshape(len(rows), -1))
            norm.merge(found.count, found.mean, found.m2)
