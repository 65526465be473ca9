"""`guard`: stops at the first NaN or infinite number, before it spreads or is saved.

metrics of a loop  ─ guard ────────┐
loss and gradient  ─ the learner ──┼─> GuardError: what, where, the last good checkpoint
state to be saved  ─ check_state ──┘
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from muster import nets
from muster.errors import MusterError
from muster.framework import Context, Middleware, Task
from muster.run import NonFiniteStateError


class GuardError(MusterError):
    """A metric, a loss, a gradient or a part of the state is NaN or infinite."""


def guard(last_good: Callable[[], Path | None]) -> Middleware:
    """Raise GuardError if a metric of this loop is NaN or infinite.

    Use it after the middleware that computes the metrics. Then nothing on the way back (evaluation,
    logging, checkpoint) happens in a loop that went wrong.

    Args:
        last_good: Returns the last checkpoint, for the message.
    """

    def _guard(ctx: Context) -> None:
        for name, value in ctx.get("metrics", {}).items():
            if not math.isfinite(value):
                why = "learning diverged, or the environment returned such a number"
                raise _error(f"{name} is {value}", why, ctx, last_good)

    return _guard


@contextmanager
def guarded(task: Task, last_good: Callable[[], Path | None]) -> Iterator[None]:
    """Convert errors about NaN or infinite values, from a learner or a store, to GuardError.

    Args:
        task: The task that runs in this block.
        last_good: Returns the last checkpoint, for the message.
    """
    try:
        yield
    except (nets.NonFiniteError, NonFiniteStateError) as error:
        what, why, _ = error.args
        raise _error(what, why, task.ctx, last_good) from error


def check_state(parts: Mapping[str, Any]) -> None:
    """Raise NonFiniteStateError if an array of the state, at any depth, holds a NaN or an infinity.

    The store checks only the policy. But a NaN in an optimiser or a target network would spread to
    the policy in the first update after a resume, and then there would be no good checkpoint left.
    """
    for name, value in parts.items():
        if isinstance(value, Mapping):
            check_state({f"{name}/{key}": each for key, each in value.items()})
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
            finite = np.isfinite(value)
            if not finite.all():
                bad = value.size - np.count_nonzero(finite)
                raise NonFiniteStateError(
                    f"{name} holds {bad} of {value.size} numbers that are NaN or infinite",
                    "learning diverged; such a state is not saved",
                    "a smaller --lr",
                )


def _error(what: str, why: str, ctx: Context, last_good: Callable[[], Path | None]) -> GuardError:
    where = f"at train_iter {ctx.get('train_iter', 0)}, env_step {ctx.get('env_step', 0)}"
    try:
        saved = last_good()
    except MusterError:  # a damaged store is reported separately, to the code that opens it
        saved = None
    fix = f"--from-checkpoint {saved}, with a smaller --lr" if saved else "a smaller --lr"
    return GuardError(f"{what} {where}", why, fix)
