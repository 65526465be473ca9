"""What learners with roles around them have in common: the evaluator, and what to resume from."""

import warnings

from muster.errors import MusterWarning
from muster.framework import Context, Task
from muster.recipes.algorithms import make_agent
from muster.recipes.job import Job, load_checkpoint
from muster.run import Checkpoint, RunDirectory
from muster.workers import EvaluationAbandoned, EvaluationUnfinished, evaluate_policy
from muster.workers.apart import EvaluationApart


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


def checkpoint_to_resume(task: Task, job: Job) -> Checkpoint | None:
    """Return what a learner goes on from: its previous incarnation's last, or the run's."""
    store = RunDirectory.join(job.run_dir).checkpoints
    if task.router.resumed and store.last() is not None:
        return store.load()
    if job.options.resume and job.start_from is not None:
        return load_checkpoint(job.start_from)
    return None
