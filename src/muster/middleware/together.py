"""Middleware of equal workers in step: `collect_rollout`, `learn`, and `agree` on the end."""

from collections.abc import Generator

from muster.framework import Context, Middleware
from muster.workers.slot_worker import SlotWorker


def collect_rollout(worker: SlotWorker) -> Middleware:
    """Collect the next rollout, together with all other workers.

    Sets `ctx.env_step`, and `ctx.episodes` to the episodes that ended in it.

    Args:
        worker: Collects its share.
    """

    def _collect_rollout(ctx: Context) -> None:
        ctx.keep("rollout", "env_step", "train_iter")
        loop = ctx.setdefault("rollout", worker.rollout)
        ctx.setdefault("env_step", worker.env_steps(loop))
        worker.collect(loop)
        ctx.env_step = worker.env_steps(loop + 1)
        ctx.setdefault("metrics", {})
        ctx.episodes = worker.group.episodes(loop)

    return _collect_rollout


def learn(worker: SlotWorker) -> Middleware:
    """Learn from the rollout, together with all other workers. Sets `ctx.train_iter`.

    Args:
        worker: Computes its part.
    """

    def _learn(ctx: Context) -> None:
        metrics = worker.learn(ctx.rollout)
        ctx.train_iter = worker.agent.train_iter
        ctx.setdefault("metrics", {}).update({f"train/{k}": v for k, v in metrics.items()})

    return _learn


def agree(worker: SlotWorker) -> Middleware:
    """End the loop together; the first worker decides whether it is the last one.

    Use it between the middleware that may set `ctx.finish` and the middleware that writes in the
    last loop: its way back must come after the former and before the latter.

    Args:
        worker: A worker of the team.
    """

    def _agree(ctx: Context) -> Generator[None, None, None]:
        yield
        ctx.finish = worker.agree(ctx.rollout, ctx.finish)
        ctx.rollout += 1

    return _agree
