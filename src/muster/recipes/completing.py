"""Runs that end without training: their limit was reached before, or their driver closed them.

A resumed run that has reached its limit was killed between its last checkpoint and its result, or
had already ended. It lacks only the last evaluation and `result.json`; its policy stays the same to
the bit. A `Trainer` that is closed before its first step leaves a result without an evaluation.
"""

import time
import warnings
from dataclasses import replace
from typing import Any

from muster.errors import MusterWarning
from muster.recipes.gate import CLOSED
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job
from muster.recipes.keeping import EVALUATED, keep_best
from muster.recipes.metric_sinks import metric_sinks
from muster.recipes.result import RunResult
from muster.recipes.worker_range import range_of
from muster.run import Checkpoint, MetricsWriter, RunDirectory, RunDirectoryError
from muster.workers import (
    Evaluation,
    EvaluationAbandoned,
    EvaluationUnfinished,
    evaluate_policy,
)

_ENDED = ("steps", "target", "episodes")


def limit_reached(job: Job, last: Checkpoint) -> str | None:
    """Return the limit that a checkpoint has reached, such as `steps` or `target`; None if none."""
    if last.counters["env_step"] >= job.env_steps:
        return "steps"
    of_the_algorithm = getattr(job.cfg, "limit_reached", None)
    if of_the_algorithm is not None and (own := of_the_algorithm(last.parts)) is not None:
        return str(own)
    stop_at, score = job.options.stop_at, last.meta.get(EVALUATED)
    return "target" if stop_at is not None and score is not None and score >= stop_at else None


def complete(
    job: Job,
    run: RunDirectory,
    agent: Any,
    last: Checkpoint,
    stopped_by: str,
    stop: StopRequest,
) -> RunResult:
    """Return the result of a run whose training is over, evaluating the policy if necessary.

    Args:
        job: The job of the run.
        run: The run's directory.
        agent: Receives the learnt policy.
        last: The last checkpoint.
        stopped_by: The limit that the run has reached.
        stop: Tells whether a signal has asked the run to end.
    """
    agent.load_parts({"policy": last.parts["policy"]})
    known = _known_result(run, agent.policy_sha256())
    if known is not None:
        return replace(known, policy=agent)
    started = time.monotonic()
    evaluation = _evaluated(job, agent, stop)
    if evaluation is not None:
        _write_down(job, run, last, evaluation)
    seconds = time.monotonic() - started
    return _result(job, run, agent, last, stopped_by, stop, evaluation, seconds)


def unstarted(
    job: Job, run: RunDirectory, agent: Any, last: Checkpoint | None, stop: StopRequest
) -> RunResult:
    """Return the result of a run that its driver has closed before the first step.

    Args:
        job: The job of the run.
        run: The run's directory.
        agent: Has the policy that the run would have begun with.
        last: The checkpoint that it would have begun from; None for a new policy.
        stop: Tells whether a signal has asked the run to end.
    """
    resumed = last if job.options.resume else None  # else only the policy is from there
    known = _known_result(run, agent.policy_sha256()) if resumed is not None else None
    if known is not None:
        return replace(known, policy=agent)
    return _result(job, run, agent, resumed, CLOSED, stop)


def _result(
    job: Job,
    run: RunDirectory,
    agent: Any,
    last: Checkpoint | None,
    stopped_by: str,
    stop: StopRequest,
    evaluation: Evaluation | None = None,
    seconds: float = 0.0,
) -> RunResult:
    asked = range_of(job.options.workers)
    return RunResult(
        algo=job.algo,
        env=job.env,
        seed=job.options.seed,
        workers=job.workers,
        env_steps=0 if last is None else last.counters["env_step"],
        train_iter=0 if last is None else last.counters["train_iter"],
        seconds=seconds,
        env_steps_per_s=0.0,
        eval_return_mean=evaluation.mean if evaluation else None,
        eval_return_std=evaluation.std if evaluation else None,
        eval_episodes=evaluation.episodes if evaluation else 0,
        policy_sha256=agent.policy_sha256(),
        stopped_by=stopped_by if stop.signal is None else "signal",
        run_dir=run.path,
        policy=agent,
        backend=job.options.backend,
        stop_signal=stop.signal,
        workers_range=None if asked is None else (asked.low, asked.high),
    )


def _known_result(run: RunDirectory, policy: str) -> RunResult | None:
    """Return the saved result if it belongs to this policy and the run had ended."""
    try:
        saved = run.read_result()
    except RunDirectoryError:  # the file is unreadable: write a new one
        return None
    known = None if saved is None else RunResult.from_json(saved)
    if known is None or known.policy_sha256 != policy or known.stopped_by not in _ENDED:
        return None
    return known if known.eval_return_mean is not None else None


def _evaluated(job: Job, agent: Any, stop: StopRequest) -> Evaluation | None:
    options = job.options
    try:
        return evaluate_policy(
            agent,
            job.eval_setup,
            options.eval_episodes,
            options.seed,
            stop.is_requested,
            options.eval_max_steps,
            job.evaluation_seconds(time.monotonic()),
            backend=job.eval_backend,
        )
    except EvaluationAbandoned:
        return None
    except EvaluationUnfinished as unfinished:
        warnings.warn(str(unfinished), MusterWarning, stacklevel=2)
        return None


def _write_down(job: Job, run: RunDirectory, last: Checkpoint, evaluation: Evaluation) -> None:
    best = run.best.score()
    if best is None or evaluation.mean > best:
        learned = {"policy": last.parts["policy"]}
        keep_best(run, job, learned, last.counters, evaluation.mean)
    sinks = metric_sinks(run, job.options)
    with MetricsWriter(run, resume_from=last.step, sinks=sinks) as writer:
        if writer.last_step("eval/return") != last.step:
            writer.write(last.step, {"eval/return": evaluation.mean})
