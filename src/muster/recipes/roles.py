"""What learners with roles around them have in common: how they begin, and their evaluator."""

import warnings
from typing import Any, Protocol

from muster.errors import MusterWarning
from muster.framework import Context, Task
from muster.recipes.algorithms import make_agent
from muster.recipes.job import Job, load_checkpoint
from muster.run import Checkpoint, RunDirectory
from muster.workers import EvaluationAbandoned, EvaluationUnfinished, evaluate_policy
from muster.workers.apart import EvaluationApart
from muster.workers.episode_log import EpisodeLog


def evaluate(task: Task, job: Job) -> None:
    """Evaluate what the learner asks about."""
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
                job.env,
                job.options.eval_episodes,
                job.options.seed,
                lambda: ctx.finish,
                job.options.eval_max_steps,
                question.info["seconds"],
                backend=job.options.backend,
            )
        except EvaluationAbandoned:
            return
        except EvaluationUnfinished as unfinished:
            warnings.warn(str(unfinished), MusterWarning, stacklevel=1)
        apart.answer(question, found)

    task.use(_evaluate)
    task.run()


class Resumes(Protocol):
    """Where a learner's experience comes from."""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue what a checkpoint holds."""


def begin_or_resume(task: Task, job: Job, agent: Any, source: Resumes) -> Checkpoint | None:
    """Make a learner what it begins with, and return the checkpoint that it resumes, if any."""
    resumed = _checkpoint_to_resume(task, job)
    if resumed is not None:
        agent.load_parts({name: resumed.parts[name] for name in agent.parts()})
        source.resume(resumed)
        task.ctx.keep("env_step", "train_iter")
        task.ctx.update(resumed.counters)
    elif job.start_from is not None:
        agent.load_parts({"policy": load_checkpoint(job.start_from).parts["policy"]})
    return resumed


def written_before(task: Task, resumed: Checkpoint | None, episodes: EpisodeLog) -> int | None:
    """Return the step that metrics go on from, and restore the episodes still to be written."""
    if resumed is None:
        # A learner that was replaced before its first checkpoint begins anew; so do its metrics.
        return 0 if task.router.resumed else None
    if "episodes" in resumed.parts:  # not in one of an earlier version
        episodes.load_state_dict(resumed.parts["episodes"])
    return resumed.step


def _checkpoint_to_resume(task: Task, job: Job) -> Checkpoint | None:
    store = RunDirectory.join(job.run_dir).checkpoints
    if task.router.resumed and store.last() is not None:
        return store.load()
    if job.options.resume and job.start_from is not None:
        return load_checkpoint(job.start_from)
    return None
