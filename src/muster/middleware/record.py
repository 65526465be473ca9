"""`checkpoint` and `log_metrics`: what is left of a loop when it is over."""

from collections.abc import Callable, Generator

from muster.framework import Context, Middleware
from muster.framework.node import elastic_nodes, replacements
from muster.run import MetricsWriter
from muster.workers.episode_log import EpisodeLog


def checkpoint(save: Callable[[Context], object], every: int) -> Middleware:
    """Save on the way back, every so many environment steps and in the last loop.

    Args:
        save: Does it.
        every: Environment steps from one to the next; 0 for only at the end.
    """

    def _checkpoint(ctx: Context) -> Generator[None, None, None]:
        before = ctx.get("env_step", 0)
        yield
        if ctx.finish or _crossed(before, ctx.env_step, every):
            save(ctx)

    return _checkpoint


def log_metrics(
    writer: MetricsWriter,
    episodes: EpisodeLog,
    every: int = 1_000,
    checkpoint_every: int = 0,
    note: Callable[[Context], object] | None = None,
) -> Middleware:
    """Write the metrics of the loop and of all episodes since the last line.

    A line is due after so many environment steps, in a loop that evaluates or saves, and in the
    last one. Since one is written before every checkpoint, a resumed run has no episodes that were
    counted and not written.

    Args:
        writer: Where they go.
        episodes: Counts the episodes (`ctx.episodes`) of every loop.
        every: Environment steps from one line to the next; the first loop of a run has one, too.
        checkpoint_every: Environment steps from one checkpoint to the next; 0 for only at the end.
        note: Called in each loop, when its episodes were counted and its line, if any, is written.
    """

    def _log_metrics(ctx: Context) -> Generator[None, None, None]:
        before = ctx.get("env_step", 0)
        yield
        if "episodes" in ctx:
            episodes.add(ctx.episodes)
        metrics = ctx.setdefault("metrics", {})
        metrics.update(episodes.window())
        # Nothing but the counters decides, so a resumed run and a replaced worker write the same.
        due = any(_crossed(before, ctx.env_step, steps) for steps in (every, checkpoint_every))
        if due or before == 0 or "evaluation" in ctx or ctx.finish:
            metrics.update(episodes.take())
            metrics.update(ctx.pop("logged", {}))
            replaced = replacements()
            if replaced is not None:
                metrics["nodes/replaced"] = replaced
            metrics.update({f"nodes/{role}": here for role, here in elastic_nodes().items()})
            if metrics:
                writer.write(ctx.env_step, metrics, train_iter=ctx.train_iter)
        if note is not None:
            note(ctx)

    return _log_metrics


def _crossed(before: int, now: int, every: int) -> bool:
    """Whether a multiple of `every` lies between two counts; 0 has none."""
    return every > 0 and now // every > before // every
