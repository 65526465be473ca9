"""`checkpoint` and `log_metrics`: save the state, and write the metrics of a loop.

A loop has at most one line of metrics. `write_line` writes it before its turn, for a checkpoint
that is saved before its turn.
"""

from collections.abc import Callable, Generator

from muster.framework import Context, Middleware
from muster.framework.node import elastic_nodes, replacements
from muster.run import MetricsWriter
from muster.workers.episode_log import EpisodeLog

_WRITTEN = "line_written"
"""Key of a loop whose line is written."""


def checkpoint(save: Callable[[Context], object], every: int) -> Middleware:
    """Save on the way back, at intervals of environment steps and in the last loop.

    Args:
        save: Saves the checkpoint.
        every: Environment steps between checkpoints; 0 for only at the end.
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

    A line is due after `every` environment steps, in a loop that evaluates or saves, and in the
    last loop. A line is written before every checkpoint, so a resumed run has no episodes that were
    counted but not written. Sets `ctx.own_metrics` if the user's hooks or environments have given
    numbers for the line.

    Args:
        writer: Receives the metrics.
        episodes: Counts the episodes (`ctx.episodes`) of every loop.
        every: Environment steps between lines; the first loop of a run has a line, too.
        checkpoint_every: Environment steps between checkpoints; 0 for only at the end.
        note: Called in each loop, after its episodes were counted and its line, if any, was
            written.
    """

    def _log_metrics(ctx: Context) -> Generator[None, None, None]:
        before = ctx.get("env_step", 0)
        yield
        count_episodes(ctx, episodes)
        # Only the counters decide, so a resumed run and a replaced worker write the same lines.
        due = any(_crossed(before, ctx.env_step, steps) for steps in (every, checkpoint_every))
        if due or before == 0 or "evaluation" in ctx or ctx.finish:
            write_line(ctx, writer, episodes)
        if note is not None:
            note(ctx)

    return _log_metrics


def count_episodes(ctx: Context, episodes: EpisodeLog) -> None:
    """Count the episodes that ended in this loop, once."""
    if "episodes" in ctx:
        episodes.add(ctx.pop("episodes"))
    ctx.setdefault("metrics", {}).update(episodes.window())


def write_line(ctx: Context, writer: MetricsWriter, episodes: EpisodeLog) -> None:
    """Write the line of metrics of this loop, unless it is written.

    Args:
        ctx: The context of the loop.
        writer: Receives the metrics.
        episodes: Has counted the episodes of the loop.
    """
    if ctx.get(_WRITTEN):
        return
    ctx[_WRITTEN] = True
    metrics = ctx.metrics
    metrics.update(episodes.take())
    own = {**episodes.take_metrics(), **ctx.pop("logged", {})}
    if own:
        metrics.update(own)
        ctx.own_metrics = own
    replaced = replacements()
    if replaced is not None:
        metrics["nodes/replaced"] = replaced
    metrics.update({f"nodes/{role}": here for role, here in elastic_nodes().items()})
    if metrics:
        writer.write(ctx.env_step, metrics, train_iter=ctx.train_iter)


def _crossed(before: int, now: int, every: int) -> bool:
    """Whether a multiple of `every` lies between two counts; False if `every` is 0."""
    return every > 0 and now // every > before // every
