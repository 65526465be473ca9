"""`evaluate`: evaluates the policy at intervals of environment steps, and at the end."""

import warnings
from collections.abc import Callable, Generator

from muster.errors import MusterWarning
from muster.framework import Context, Middleware
from muster.workers import EvaluationAbandoned, EvaluationUnfinished, Evaluator


def evaluate(
    evaluator: Evaluator,
    every: int,
    on_best: Callable[[Context], object] | None = None,
    best: float | None = None,
) -> Middleware:
    """Evaluate on the way back, and set `ctx.finish` when the policy is good enough.

    An evaluation that a signal interrupts ends the run without a result. An evaluation with too
    little time for one episode per environment is skipped, with a warning.

    Args:
        evaluator: Evaluates, and decides what is good enough.
        every: Environment steps between evaluations; 0 for only at the end.
        on_best: Called with ctx when an evaluation was the best so far.
        best: The best result so far of a resumed run.
    """

    def _evaluate(ctx: Context) -> Generator[None, None, None]:
        nonlocal best
        before = ctx.get("env_step", 0)
        yield
        due = every > 0 and ctx.env_step // every > before // every
        # A user who sends a signal wants to leave now, not after a hundred episodes.
        at_end = ctx.finish and ctx.get("stopped_by") != "signal"
        if not (due or at_end):
            return
        try:
            stop, mean = evaluator.eval(None, ctx.train_iter, ctx.env_step)
        except EvaluationAbandoned:
            ctx.finish, ctx.stopped_by = True, "signal"
            return
        except EvaluationUnfinished as unfinished:
            warnings.warn(str(unfinished), MusterWarning, stacklevel=2)
            return
        ctx.evaluation, ctx.eval_return = evaluator.last, mean
        ctx.setdefault("metrics", {})["eval/return"] = mean
        if stop and not ctx.finish:
            ctx.finish, ctx.stopped_by = True, "target"
        if best is None or mean > best:
            best = mean
            if on_best is not None:
                on_best(ctx)

    return _evaluate
