"""`guard`: stops at the first number that is none, before it spreads."""

import math
from collections.abc import Callable
from pathlib import Path

from muster.errors import MusterError
from muster.framework import Context, Middleware


class GuardError(MusterError):
    """A metric is NaN or infinite."""


def guard(last_good: Callable[[], Path | None]) -> Middleware:
    """Raise GuardError if a metric of this loop is NaN or infinite.

    Args:
        last_good: Returns the last checkpoint, for the message.
    """

    def _guard(ctx: Context) -> None:
        for name, value in ctx.get("metrics", {}).items():
            if not math.isfinite(value):
                saved = last_good()
                raise GuardError(
                    f"{name} is {value} at train_iter {ctx.get('train_iter', 0)}, "
                    f"env_step {ctx.get('env_step', 0)}",
                    "learning diverged, or the environment gave such a number",
                    f"--from-checkpoint {saved}" if saved else "a smaller --lr",
                )

    return _guard
