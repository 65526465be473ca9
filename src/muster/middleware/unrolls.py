"""Unrolls, each used once: `collect_unrolls` or `receive_unrolls`, then `learn_unrolls`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from muster.data.unrolls import CutEpisodes
from muster.envs.step_metrics import MetricSums
from muster.flow import Weights
from muster.framework import Context, Middleware
from muster.middleware.nodes import TakesWeights
from muster.workers.episode_log import EndedEpisodes
from muster.workers.unroll_learner import UnrollLearner


class GatheredUnrolls(Protocol):
    """The data of a batch besides its columns."""

    @property
    def cut(self) -> Sequence[CutEpisodes]:
        """Truncated episodes of each unroll."""

    @property
    def episodes(self) -> list[tuple[float, float]]:
        """Return and length of each episode that ended in the batch."""

    @property
    def lags(self) -> Sequence[int]:
        """Age of each unroll's weights, in versions."""

    @property
    def waiting(self) -> int:
        """Unrolls that had arrived besides those of the batch, when it was taken."""

    @property
    def metrics(self) -> MetricSums:
        """Sums of the environment's own metrics in the batch."""


class UnrollSource(Protocol):
    """The source of unrolls."""

    def fill(self) -> GatheredUnrolls | None:
        """Fill a batch; None when the run finishes first."""

    def learnt(self) -> None:
        """Note that the batch was learnt from."""


def collect_unrolls(source: UnrollSource, steps: int) -> Middleware:
    """Collect a batch of unrolls in this process.

    Sets `ctx.unrolls`, `ctx.env_step`, `ctx.episodes`, and metrics of the batch.

    Args:
        source: Collects the unrolls.
        steps: Environment steps of a batch.
    """
    gather = _gathering(source, steps)

    def _collect_unrolls(ctx: Context) -> None:
        gather(ctx)

    return _collect_unrolls


def receive_unrolls(source: UnrollSource, steps: int) -> Middleware:
    """Wait for a batch of unrolls from other nodes; otherwise as `collect_unrolls`."""
    gather = _gathering(source, steps)

    def _receive_unrolls(ctx: Context) -> None:
        gather(ctx)

    return _receive_unrolls


def _gathering(source: UnrollSource, steps: int) -> Callable[[Context], None]:
    most = 0

    def gather(ctx: Context) -> None:
        nonlocal most
        ctx.keep("env_step", "train_iter")
        ctx.setdefault("env_step", 0)
        found = ctx.unrolls = source.fill()
        metrics = ctx.setdefault("metrics", {})
        if found is None:
            ctx.episodes = EndedEpisodes.of([])
            return
        ctx.episodes = EndedEpisodes.of(found.episodes, found.metrics)
        ctx.env_step += steps
        metrics["stream/unrolls"] = len(found.cut)
        metrics["stream/waiting"] = found.waiting
        if found.lags:
            most = max(most, *found.lags)
            metrics["lag/min"] = min(found.lags)
            metrics["lag/mean"] = sum(found.lags) / len(found.lags)
            metrics["lag/max"] = max(found.lags)
            metrics["lag/most"] = most

    return gather


def learn_unrolls(learner: UnrollLearner, source: UnrollSource, steps: int) -> Middleware:
    """Learn from the batch once, and notify its source. Sets `ctx.train_iter`.

    Args:
        learner: Takes the gradient step.
        source: The source of the batch.
        steps: Environment steps of a batch.
    """

    def _learn_unrolls(ctx: Context) -> None:
        if ctx.unrolls is not None:
            metrics = learner.learn(ctx.unrolls.cut, ctx.env_step - steps)
            ctx.metrics.update({f"train/{name}": value for name, value in metrics.items()})
            source.learnt()
        ctx.train_iter = learner.agent.train_iter

    return _learn_unrolls


class SendsUnrolls(Protocol):
    """An actor's connection to the learner."""

    def weights(self) -> Weights | None:
        """Wait until an unroll may begin, and return its weights; None if the run finishes."""

    def send(self, columns: Any, collected: Any, weights: Weights) -> bool:
        """Send the unroll that began with these weights."""


class CollectsUnrolls(Protocol):
    """Collects one unroll at a time."""

    def collect(self) -> Any:
        """Collect one unroll, and return its data besides the columns."""


def act_unrolls(
    collector: CollectsUnrolls, columns: Any, outbox: SendsUnrolls, agent: TakesWeights
) -> Middleware:
    """Collect unrolls, each with the newest weights that have arrived at its start, and send them.

    Args:
        collector: Steps the environments.
        columns: The columns that the collector writes, by name.
        outbox: Provides the weights, and sends the unrolls.
        agent: The collector's policy.
    """
    version = 0

    def _act_unrolls(ctx: Context) -> None:
        nonlocal version
        weights = outbox.weights()
        if weights is None:
            return
        if weights.version != version:
            agent.load_policy(weights.values)
            version = weights.version
        outbox.send(columns, collector.collect(), weights)

    return _act_unrolls
