"""Workers send gradients, and one node uses each of them once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from muster.flow import ParameterServer
from muster.flow.ledger import LagCount
from muster.framework import Context, Middleware
from muster.workers.episode_log import EndedEpisodes
from muster.workers.gradient_worker import Contribution, GradientWorker


def contribute(worker: GradientWorker, server: ParameterServer) -> Middleware:
    """Take over the newest weights, collect, and send the gradient.

    It waits for weights newer than those of its last gradient, so that it never computes two for
    the same ones.

    Args:
        worker: Collects and differentiates.
        server: Has the weights, and takes the gradients.
    """
    version: int | None = None

    def _contribute(ctx: Context) -> None:
        nonlocal version
        newest = server.pull(newer_than=version)
        if newest is None:
            return  # the run is over
        version, agent = newest.version, worker.agent
        agent.load_policy(newest.values)
        agent.train_iter = newest.info["train_iter"]
        server.push_gradients(worker.contribute(newest.info["env_step"]), version)

    return _contribute


def take_gradients(take: Callable[[], Sequence[Contribution]]) -> Middleware:
    """Wait for gradients of workers. Sets `ctx.contributions`.

    Args:
        take: Returns those that are here, once there is one; none when the run is over.
    """

    def _take_gradients(ctx: Context) -> None:
        ctx.contributions = take()

    return _take_gradients


def compute_gradient(worker: GradientWorker) -> Middleware:
    """Collect and differentiate in this process. Sets `ctx.contributions`."""

    def _compute_gradient(ctx: Context) -> None:
        ctx.contributions = [worker.contribute(ctx.env_step)]

    return _compute_gradient


def apply_gradients(agent: Any) -> Middleware:
    """Use the gradients of `ctx.contributions`, each once and by itself, in their order.

    Sets `ctx.env_step`, `ctx.train_iter`, `ctx.episodes` and metrics, the lags among them: updates
    since the weights that a gradient was computed for.

    Args:
        agent: Whose weights they change: an `InStepAgent`.
    """

    def _apply_gradients(ctx: Context) -> None:
        metrics = ctx.setdefault("metrics", {})
        lags, norms = LagCount(), []
        for each in ctx.contributions:
            lag = agent.train_iter - each.train_iter
            lags.add(lag, lag, lag)
            agent.adam.lr = agent.lr(ctx.env_step)
            norms.append(agent.step(each.gradient))
            ctx.env_step += each.steps
        ctx.train_iter = agent.train_iter
        ctx.episodes = EndedEpisodes.joined([each.episodes for each in ctx.contributions])
        if not norms:
            return
        means = np.mean([each.stats for each in ctx.contributions], axis=0).tolist()
        metrics.update({f"train/{k}": v for k, v in zip(agent.stats, means, strict=True)})
        metrics.update({"train/grad_norm": float(np.mean(norms)), "train/lr": agent.adam.lr})
        metrics.update({"lag/min": lags.least, "lag/mean": lags.mean, "lag/max": lags.most})

    return _apply_gradients
