"""The metadata of a training program's checkpoints, and how the best checkpoint is kept."""

from collections.abc import Mapping
from typing import Any

from muster import middleware
from muster.framework import Context
from muster.recipes.job import Job
from muster.run import RunDirectory

EVALUATED = "evaluated"


def counters_of(ctx: Context) -> dict[str, int]:
    """Return the counters at the end of this loop."""
    return {"env_step": ctx.env_step, "train_iter": ctx.train_iter}


def meta_of(job: Job, ctx: Context) -> dict[str, Any]:
    """Return the metadata of a checkpoint.

    `ctx.evaluation` is the evaluation of the weights at the end of the loop. If there is one, its
    mean goes into the checkpoint: it tells a resumed run that its target is reached.
    """
    meta = {"algo": job.algo, "env": job.env}
    evaluation = ctx.get("evaluation")
    return meta if evaluation is None else {**meta, EVALUATED: evaluation.mean}


def keep_best(
    run: RunDirectory,
    job: Job,
    learned: Mapping[str, Any],
    counters: Mapping[str, int],
    mean: float,
) -> None:
    """Save weights as the best ones, with the mean return of exactly these weights.

    Args:
        run: The directory to save to.
        job: The job of the run.
        learned: The parts of the agent that was evaluated.
        counters: Counters of the loop at which those parts were copied.
        mean: Mean return of the evaluation.
    """
    middleware.check_state(learned)
    meta = {"algo": job.algo, "env": job.env, EVALUATED: mean}
    run.best.save(counters["env_step"], learned, dict(counters), meta, mean)
