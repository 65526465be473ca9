"""Shared code of programs with roles: how a learner begins, and the evaluator."""

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from muster.errors import MusterWarning
from muster.framework import Context, Task
from muster.recipes.algorithms import make_agent
from muster.recipes.harness import Harness
from muster.recipes.job import Job, first_parts_of, load_checkpoint
from muster.run import Checkpoint, RunDirectory
from muster.workers import EvaluationAbandoned, EvaluationUnfinished, evaluate_policy
from muster.workers.apart import EvaluationApart


def evaluate(task: Task, job: Job) -> None:
    """Evaluate the weights that the learner sends."""
    agent = make_agent(job.algo, job.cfg, job.spaces(), job.options.seed)
    apart = EvaluationApart()

    def _evaluate(ctx: Context) -> None:
        question = apart.next_question()
        if question is None:
            return
        agent.load_policy(question.values)
        found = None
        try:
            found = evaluate_policy(
                agent,
                job.eval_setup,
                job.options.eval_episodes,
                job.options.seed,
                lambda: ctx.finish,
                job.options.eval_max_steps,
                question.info["seconds"],
                backend=job.eval_backend,
            )
        except EvaluationAbandoned:
            return
        except EvaluationUnfinished as unfinished:
            warnings.warn(str(unfinished), MusterWarning, stacklevel=1)
        apart.answer(question, found)

    task.use(_evaluate)
    task.run()


def with_range(job: Job, roles: Mapping[str, int], role: str) -> dict[str, int | tuple[int, int]]:
    """Return the roles of a run, one of them as a range if its nodes may join and leave.

    Args:
        job: The job of the run.
        roles: The maximum number of nodes of each role.
        role: The role that acts.
    """
    found: dict[str, int | tuple[int, int]] = dict(roles)
    if job.elastic is not None and role in roles:
        found[role] = roles[role] - (job.elastic.high - job.elastic.low), roles[role]
    return found


class Resumes(Protocol):
    """A source of a learner's experience."""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state from a checkpoint."""


def begin_learner(task: Task, job: Job, agent: Any, source: Resumes) -> Checkpoint | None:
    """Initialise a learner, and return the checkpoint that it resumes from.

    The checkpoint is the last one of its previous incarnation, or the run's. Without one the
    learner is new, possibly with the policy of another run.
    """
    ctx = task.ctx
    ctx.keep("env_step", "train_iter")
    ctx.update(env_step=0, train_iter=0)
    resumed = _checkpoint_to_resume(task, job)
    if resumed is not None:
        agent.load_parts({name: resumed.parts[name] for name in agent.parts()})
        source.resume(resumed)
        ctx.update(resumed.counters)
    elif job.start_from is not None:
        agent.load_parts(first_parts_of(load_checkpoint(job.start_from)))
    return resumed


def record_learner(
    task: Task, job: Job, harness: Harness, resumed: Checkpoint | None, every: int = 1_000
) -> None:
    """Record and evaluate: on the evaluator's node, if there is one.

    Args:
        task: The learner's task.
        job: The job of the run.
        harness: The harness of the learner.
        resumed: The checkpoint that the learner resumes from.
        every: Environment steps between two lines of metrics.
    """
    # A learner that was replaced before its first checkpoint begins anew, and so do its metrics.
    written = 0 if task.router.resumed else None
    if resumed is not None:
        written = resumed.step
        if "episodes" in resumed.parts:  # missing in checkpoints of earlier versions
            harness.episodes.load_state_dict(resumed.parts["episodes"])
    harness.record(written, every)
    if job.workers:
        harness.evaluate_apart(EvaluationApart())
    else:
        harness.evaluate()


def _checkpoint_to_resume(task: Task, job: Job) -> Checkpoint | None:
    store = RunDirectory.join(job.run_dir).checkpoints
    if task.router.resumed and store.last() is not None:
        return store.load()
    if job.options.resume and job.start_from is not None:
        return load_checkpoint(job.start_from)
    return None
