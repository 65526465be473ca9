"""`stop_after`: ends a run after a number of steps or seconds."""

import time
from collections.abc import Callable

from muster.framework import Context, Middleware


def stop_after(
    env_steps: int | None = None,
    seconds: float | None = None,
    started: float | None = None,
    reserve: Callable[[], float] = lambda: 0.0,
) -> Middleware:
    """Set `ctx.finish` after enough environment steps, or when time is up.

    Args:
        env_steps: Total environment steps; None for no limit.
        seconds: Wall time in seconds; None for no limit.
        started: Start of that time, by `time.monotonic`. None: now.
        reserve: Returns the seconds to keep for work after the last loop, such as an evaluation; at
            most half of `seconds` is kept.
    """
    since = time.monotonic() if started is None else started

    def _stop_after(ctx: Context) -> None:
        if env_steps is not None and ctx.env_step >= env_steps:
            ctx.finish = True
            ctx.stopped_by = "steps"
        elif seconds is not None:
            kept = min(reserve(), seconds / 2)
            if time.monotonic() - since >= seconds - kept:
                ctx.finish = True
                ctx.stopped_by = "time"

    return _stop_after
