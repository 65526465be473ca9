"""`checkpoint` and `log_metrics`: what is left of a loop when it is over."""

from collections.abc import Callable, Generator

from muster.framework import Context, Middleware
from muster.framework.node import replacements
from muster.run import MetricsWriter


def checkpoint(save: Callable[[Context], object], every: int) -> Middleware:
    """Save on the way back, every so many environment steps and in the last loop.

    Args:
        save: Does it.
        every: Environment steps from one to the next; 0 for only at the end.
    """

    def _checkpoint(ctx: Context) -> Generator[None, None, None]:
        before = ctx.get("env_step", 0)
        yield
        if ctx.finish or (every > 0 and ctx.env_step // every > before // every):
            save(ctx)

    return _checkpoint


def log_metrics(writer: MetricsWriter, every: int = 1_000) -> Middleware:
    """Write the metrics of the loop, at most once in so many environment steps, and evaluations.

    Args:
        writer: Where they go.
        every: Environment steps from one line to the next.
    """
    written_at = -every

    def _log_metrics(ctx: Context) -> Generator[None, None, None]:
        nonlocal written_at
        yield
        metrics = ctx.get("metrics", {})
        due = ctx.env_step - written_at >= every or "evaluation" in ctx or ctx.finish
        if metrics and due:
            written_at = ctx.env_step
            replaced = replacements()
            if replaced is not None:
                metrics = {**metrics, "nodes/replaced": replaced}
            writer.write(ctx.env_step, metrics, train_iter=ctx.train_iter)

    return _log_metrics
