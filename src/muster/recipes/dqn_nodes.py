"""DQN with its parts on nodes of their own: the program behind `muster train dqn --workers N`.

    actors ──fragments──> replay at the learner ──batches──> updates ──weights, by version──> actors
                                          └──weights to evaluate──> evaluator ──returns──> learner

With `--replay-shards K` replay is on K more nodes, and the learner asks them for batches. Only the
learner writes files. Anyone may be killed: actors, the evaluator and shards are started again (a
shard is empty then), the learner goes on from its last checkpoint.
"""

import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster import middleware
from muster.algos.dqn import DQN, PARTS
from muster.data import ReplayBuffer, ShardedReplay
from muster.errors import MusterWarning
from muster.flow import ParameterServer
from muster.framework import Context, Parallel, Task
from muster.recipes.dqn_replay import (
    ON_FAILURE,
    Spaces,
    load_replay,
    replay_to_learn_from,
    replay_to_send_to,
    roles_of,
    shard_of_replay,
)
from muster.recipes.job import Job, load_checkpoint, result_of
from muster.recipes.keeping import counters_of, keep_best, meta_of
from muster.recipes.progress import Progress, opened
from muster.recipes.result import RunResult
from muster.run import Checkpoint, MetricsWriter, RunDirectory
from muster.seeding import derive_seed
from muster.workers import (
    Collector,
    EvaluationAbandoned,
    EvaluationUnfinished,
    Learner,
    evaluate_policy,
)
from muster.workers.apart import EvaluationApart, Judged
from muster.workers.episode_log import EpisodeLog

_FRAGMENT = 16
"""Vector steps that an actor sends at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the learner was when it asked for an evaluation."""

    learned: dict[str, Any]
    counters: dict[str, int]


def train_dqn_on_nodes(job: Job, run: RunDirectory) -> RunResult:
    """Train on `job.workers` nodes until a limit is reached, and return what came of it."""
    roles = roles_of(job)
    runner = Parallel.runner(
        roles=roles,
        on_failure={role: ON_FAILURE[role] for role in roles},
        log_dir=run.logs,
        engine=job.options.engine,
        address=job.options.address,
        quiet=job.options.quiet,
    )
    results: list[Any] = runner(main, job)
    result: RunResult = results[0]
    return result


def main(job: Job) -> RunResult | None:
    """Be one of the nodes."""
    job.arrive()
    with Task() as task:
        # Nobody reads the contexts of others: weights, experience and answers have their own ways.
        task.ctx.share("env_step")
        if task.router.role == "learner":
            return learn(task, job)
        {"actor": act, "evaluator": evaluate, "replay": hold}[str(task.router.role)](task, job)
        return None


def act(task: Task, job: Job) -> None:
    """Collect with the newest weights."""
    cfg, options = job.cfg, job.options
    router = task.router
    seed = derive_seed(options.seed, "actor", router.node_id, router.incarnation)
    envs = job.make_envs(options.num_envs, seed)
    agent = DQN(cfg, envs.single_observation_space, envs.single_action_space, seed)
    collector = Collector(agent, envs, steps=_FRAGMENT)
    server = ParameterServer(home="role.learner")
    buffer = replay_to_send_to(job, (agent.obs_space, agent.action_space), router)
    task.use(middleware.act(collector, buffer, server, agent, agent.epsilon))
    task.run()
    collector.close()


def hold(task: Task, job: Job) -> None:
    """Hold a part of replay."""
    task.use(middleware.serve(shard_of_replay(job, _spaces(job), task.router)))
    task.run()


def evaluate(task: Task, job: Job) -> None:
    """Evaluate what the learner asks about."""
    agent = _agent(job)
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


def learn(task: Task, job: Job) -> RunResult:
    """Learn from what the actors send, and write the run's files."""
    started = time.monotonic()
    cfg, options = job.cfg, job.options
    run = RunDirectory.join(job.run_dir)
    store = run.checkpoints
    agent = _agent(job)
    buffer = replay_to_learn_from(job, (agent.obs_space, agent.action_space), task.router)
    server = ParameterServer(home="role.learner")
    apart = EvaluationApart()
    episodes = EpisodeLog()
    resume = _state_to_go_on_from(task, job, store.last())
    best = run.best.score()
    steps_before = 0
    if resume is not None:
        agent.load_parts({name: resume.parts[name] for name in PARTS})
        if "episodes" in resume.parts:  # not in one of an earlier version
            episodes.load_state_dict(resume.parts["episodes"])
        if "replay" in resume.parts:
            load_replay(buffer, resume.parts["replay"])
        steps_before = int(resume.counters["env_step"]) - buffer.inserted
        task.ctx.keep("env_step", "train_iter")
        task.ctx.update(resume.counters)
    elif job.start_from is not None:
        agent.load_parts({"policy": load_checkpoint(job.start_from).parts["policy"]})
    assert buffer.limiter is not None
    buffer.limiter.inserts, buffer.limiter.samples = buffer.inserted, _samples_due(buffer)
    first_step = steps_before + buffer.inserted

    def save(ctx: Context) -> None:
        learned = agent.parts()
        middleware.check_state(learned)
        parts = {**learned, "episodes": episodes.state_dict()}
        if options.save_replay:
            replay = buffer.state_dict()
            if replay is not None:
                parts["replay"] = replay
            else:  # shards that a signal has ended too cannot tell any more
                warnings.warn(
                    f"the checkpoint of step {ctx.env_step} is without replay: its shards ended "
                    "before they were asked; a resumed run begins with an empty one",
                    MusterWarning,
                    stacklevel=1,
                )
        store.save(ctx.env_step, parts, counters_of(ctx), meta_of(job, ctx))
        store.prune()

    def ask(ctx: Context) -> tuple[Any, Asked, float]:
        asked = Asked(agent.parts(), counters_of(ctx))
        return asked.learned["policy"], asked, job.evaluation_seconds(started)

    def judged(ctx: Context, answer: Judged) -> None:
        nonlocal best
        if answer.evaluation is None:
            return
        asked: Asked = answer.state
        mean = answer.evaluation.mean
        # The answer is about the weights of the question: its step and its score are theirs.
        writer.write(
            asked.counters["env_step"],
            {"eval/return": mean},
            train_iter=asked.counters["train_iter"],
        )
        ctx.eval_return = mean
        if best is None or mean > best:
            best = mean
            keep_best(run, job, asked.learned, asked.counters, mean)
        if ctx.get("stopped_by") == "target":  # an earlier answer has ended the run
            return
        if options.stop_at is not None and mean >= options.stop_at:
            # The policy that was evaluated is the one that is kept, not what came of it since.
            agent.load_parts(asked.learned)
            ctx.train_iter = asked.counters["train_iter"]
            ctx.finish, ctx.stopped_by = True, "target"
        if ctx.train_iter == asked.counters["train_iter"]:
            ctx.evaluation = answer.evaluation

    def told_to_stop(ctx: Context) -> None:
        if task.told_to_finish is not None:
            ctx.finish = True
            ctx.stopped_by = "signal"

    updates = max(1, _FRAGMENT * options.num_envs * cfg.updates_per_train // cfg.train_every)
    # A learner that was replaced before its first checkpoint begins anew, and so do its metrics.
    written = resume.step if resume else (0 if task.router.resumed else None)
    with MetricsWriter(run, resume_from=written) as writer:
        task.use(Progress(job.env_steps, options.quiet, opened(job.terminal)))
        task.use(middleware.checkpoint(save, options.checkpoint_every))
        task.use(
            middleware.log_metrics(writer, episodes, checkpoint_every=options.checkpoint_every)
        )
        task.use(middleware.judge(apart, options.eval_every, ask, judged))
        task.use(middleware.receive(buffer, updates * cfg.batch_size, steps_before))
        task.use(middleware.train(Learner(agent), buffer, updates, agent.beta))
        task.use(middleware.push_weights(server, lambda: agent.parts()["policy"]))
        task.use(middleware.guard(store.last))
        task.use(middleware.stop_after(job.env_steps, options.seconds))
        task.use(told_to_stop)
        server.push(agent.parts()["policy"], env_step=first_step, train_iter=agent.train_iter)
        with middleware.guarded(task, store.last):
            ctx = task.run()
    stop = task.told_to_finish
    result = result_of(job, ctx, agent, started, first_step)
    result = replace(result, stop_signal=stop.signal if stop else None)
    run.write_result(result.as_json())
    return result


def _agent(job: Job) -> DQN:
    return DQN(job.cfg, *_spaces(job), job.options.seed)


def _spaces(job: Job) -> Spaces:
    with job.make_envs() as envs:
        return envs.single_observation_space, envs.single_action_space


def _samples_due(buffer: ReplayBuffer | ShardedReplay) -> int:
    """Return the samples that were taken of a buffer that was loaded, up to rounding."""
    limiter = buffer.limiter
    assert limiter is not None
    return max(0, round((buffer.inserted - limiter.min_size) * limiter.ratio))


def _state_to_go_on_from(task: Task, job: Job, last: Path | None) -> Checkpoint | None:
    if task.router.resumed and last is not None:
        return load_checkpoint(str(last))
    if job.options.resume and job.start_from is not None:
        return load_checkpoint(job.start_from)
    return None
