"""`collect` and `train`: put experience into the replay buffer, and learn from its batches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from muster.data.faces import Gives, Takes
from muster.framework import Context, Middleware
from muster.workers import Collector, Learner
from muster.workers.episode_log import EndedEpisodes


def collect(collector: Collector, buffer: Takes, epsilon: Callable[[float], Any]) -> Middleware:
    """Take some steps in the environments and put them into the buffer.

    Args:
        collector: Steps the environments.
        buffer: Receives the experience.
        epsilon: Maps environment steps to the probability of a random action: one number, or one
            for each environment.
    """

    def _collect(ctx: Context) -> None:
        ctx.keep("env_step")
        eps = epsilon(collector.envstep)
        data = collector.collect(policy_kwargs={"eps": eps})
        buffer.push(data, cur_collector_envstep=collector.envstep)
        ctx.env_step = collector.envstep
        ctx.setdefault("metrics", {})["collect/epsilon"] = float(np.mean(eps))
        episodes = [(each.return_, each.length) for each in collector.take_episodes()]
        ctx.episodes = EndedEpisodes.of(episodes, collector.take_metrics())

    return _collect


def train(
    learner: Learner,
    buffer: Gives,
    updates: int | Callable[[int], int] = 1,
    beta: Callable[[float], float] | None = None,
) -> Middleware:
    """Take gradient steps, as soon as the buffer returns batches.

    Args:
        learner: Takes the gradient steps.
        buffer: Returns the batches; None means that it does not have enough data yet.
        updates: Gradient steps in each loop, or a function that maps the environment step at the
            end of a loop to the number of gradient steps.
        beta: For prioritised replay: maps environment steps to the exponent of the weights. The
            buffer receives new priorities after each gradient step.
    """

    def _train(ctx: Context) -> None:
        ctx.keep("train_iter")
        ctx.train_iter = learner.train_iter
        batch_size = learner.policy.get_attribute("batch_size")
        metrics: dict[str, float] = {}
        count = updates if isinstance(updates, int) else updates(ctx.env_step)
        if not buffer.prioritized:
            batches = buffer.sample_many(count, batch_size) if count else None
            if batches is not None:
                metrics = learner.train(batches, ctx.env_step)
        else:
            for _ in range(count):
                exponent = None if beta is None else beta(ctx.env_step)
                batch = buffer.sample(batch_size, learner.train_iter, beta=exponent)
                if batch is not None:
                    metrics = learner.train(batch, ctx.env_step)
                    buffer.update_priorities(batch.index, learner.policy.get_attribute("td_error"))
        ctx.train_iter = learner.train_iter
        ctx.setdefault("metrics", {}).update({f"train/{k}": v for k, v in metrics.items()})

    return _train
