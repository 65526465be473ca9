"""What a checkpoint of a training program says of itself, and how the best one is kept."""

from collections.abc import Mapping
from typing import Any

from muster import middleware
from muster.framework import Context
from muster.recipes.job import Job
from muster.run import RunDirectory

EVALUATED = "evaluated"


def counters_of(ctx: Context) -> dict[str, int]:
    """Return the counters of what was learnt by the end of this loop."""
    return {"env_step": ctx.env_step, "train_iter": ctx.train_iter}


def meta_of(job: Job, ctx: Context) -> dict[str, Any]:
    """Return what a checkpoint says of itself.

    `ctx.evaluation` is that of the weights which are there at the end of the loop. Where there is
    one, its mean goes into the checkpoint: a resumed run sees from it that its target is reached.
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
    """Keep weights as the best ones, with the mean return that these very weights had.

    Args:
        run: Where to keep them.
        job: What they were trained for.
        learned: The parts of the agent that was evaluated.
        counters: Of the loop in which it was that agent.
        mean: Of its evaluation.
    """
    middleware.check_state(learned)
    meta = {"algo": job.algo, "env": job.env, EVALUATED: mean}
    run.best.save(counters["env_step"], learned, dict(counters), meta, mean)
