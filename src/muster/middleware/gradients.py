"""Workers send gradients, and one node applies each of them once."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from muster.flow import ParameterServer
from muster.flow.ledger import LagCount
from muster.framework import Context, Middleware
from muster.workers.episode_log import EndedEpisodes
from muster.workers.gradient_worker import Contribution


class Contributes(Protocol):
    """Computes gradients for weights that another node changes."""

    def follow(self, weights: Any, train_iter: int) -> None:
        """Load these weights, the result of `train_iter` updates."""

    def contribute(self, env_step: int) -> Contribution:
        """Act, and return a gradient; `env_step` counts the steps of all workers together."""


class AppliesGradients(Protocol):
    """Owns the weights that gradients change."""

    @property
    def train_iter(self) -> int:
        """Updates so far."""

    @property
    def stats(self) -> Sequence[str]:
        """Names of the numbers in `Contribution.stats`."""

    def use_gradient(self, gradient: Any, env_step: int) -> float:
        """Move the weights against a gradient, and return its norm."""


def contribute(worker: Contributes, server: ParameterServer) -> Middleware:
    """Load the newest weights, act, and send the gradient.

    The middleware waits for weights newer than those of its last gradient, so that it never
    computes two gradients for the same weights.

    Args:
        worker: Acts and computes gradients.
        server: Provides the weights, and accepts the gradients.
    """
    version: int | None = None

    def _contribute(ctx: Context) -> None:
        nonlocal version
        newest = server.pull(newer_than=version)
        if newest is None:
            return  # the run is over
        version = newest.version
        worker.follow(newest.values, newest.info["train_iter"])
        server.push_gradients(worker.contribute(newest.info["env_step"]), version)

    return _contribute


def take_gradients(take: Callable[[], Sequence[Contribution]]) -> Middleware:
    """Wait for gradients of workers. Sets `ctx.contributions`.

    Args:
        take: Waits for a gradient, and returns all that have arrived; empty when the run is over.
    """

    def _take_gradients(ctx: Context) -> None:
        ctx.contributions = take()

    return _take_gradients


def compute_gradient(worker: Contributes) -> Middleware:
    """Act and compute the gradient in this process. Sets `ctx.contributions`."""

    def _compute_gradient(ctx: Context) -> None:
        ctx.contributions = [worker.contribute(ctx.env_step)]

    return _compute_gradient


def apply_gradients(learner: AppliesGradients) -> Middleware:
    """Apply the gradients of `ctx.contributions`, one at a time, in their order.

    Sets `ctx.env_step`, `ctx.train_iter`, `ctx.episodes` and metrics, among them the lags: updates
    since the weights that a gradient was computed for.

    Args:
        learner: Owns the weights.
    """

    def _apply_gradients(ctx: Context) -> None:
        metrics = ctx.setdefault("metrics", {})
        lags, norms, stats = LagCount(), [], []
        for each in ctx.contributions:
            ctx.env_step += each.steps
            if each.gradient is None:
                continue
            lag = learner.train_iter - each.train_iter
            lags.add(lag, lag, lag)
            norms.append(learner.use_gradient(each.gradient, ctx.env_step - each.steps))
            stats.append(each.stats)
        ctx.train_iter = learner.train_iter
        ctx.episodes = EndedEpisodes.joined([each.episodes for each in ctx.contributions])
        if not norms:
            return
        means = np.mean(stats, axis=0).tolist()
        metrics.update({f"train/{k}": v for k, v in zip(learner.stats, means, strict=True)})
        metrics["train/grad_norm"] = float(np.mean(norms))
        metrics.update({"lag/min": lags.least, "lag/mean": lags.mean, "lag/max": lags.most})

    return _apply_gradients
