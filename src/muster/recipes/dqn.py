"""DQN from start to end: the program behind `muster train dqn`. Copy it and change it.

collect -> buffer -> train -> (way back) evaluate -> log -> checkpoint
"""

import time
from dataclasses import replace
from typing import Any

from muster import middleware
from muster.algos.dqn import DQN, PARTS
from muster.data import ReplayBuffer
from muster.framework import Context, Task
from muster.recipes.dqn_nodes import train_dqn_on_nodes
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job, result_of
from muster.recipes.keeping import counters_of, keep_best, meta_of
from muster.recipes.metric_sinks import metric_sinks
from muster.recipes.progress import Progress
from muster.recipes.result import RunResult
from muster.run import MetricsWriter, RunDirectory
from muster.seeding import derive_seed
from muster.workers import Collector, Evaluator, Learner
from muster.workers.episode_log import EpisodeLog


def train_dqn(job: Job, run: RunDirectory, stop: StopRequest) -> RunResult:
    """Train until a limit is reached, and return what came of it.

    Args:
        job: What to do.
        run: Where to write.
        stop: Tells when a signal asks to end.
    """
    if job.workers:
        return train_dqn_on_nodes(job, run)
    started = time.monotonic()
    env, cfg, options = job.env, job.cfg, job.options
    start_from = job.checkpoint()
    envs = job.make_envs(options.num_envs)
    agent = DQN(cfg, envs.single_observation_space, envs.single_action_space, options.seed)
    buffer = ReplayBuffer(
        cfg.buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        num_envs=options.num_envs,
        n_step=cfg.n_step,
        gamma=cfg.gamma,
        prioritized=cfg.prioritized,
        alpha=cfg.alpha,
        min_size=cfg.learning_starts,
        seed=derive_seed(options.seed, "replay"),
    )
    collector = Collector(agent, envs, steps=max(1, cfg.train_every // options.num_envs))
    learner = Learner(agent)
    evaluator = Evaluator(
        agent,
        env,
        episodes=options.eval_episodes,
        stop_at=options.stop_at,
        seed=options.seed,
        abandon=stop.is_requested,
        max_steps=options.eval_max_steps,
        seconds=lambda: job.evaluation_seconds(started),
        env_kwargs={"backend": options.backend},
    )
    episodes = EpisodeLog()
    store = run.checkpoints

    def save(ctx: Context) -> None:
        learned = agent.parts()
        middleware.check_state(learned)
        parts: dict[str, Any] = {
            **learned,
            "collector": collector.state_dict(),
            "episodes": episodes.state_dict(),
        }
        if options.save_replay:
            parts["replay"] = buffer.state_dict()
        store.save(ctx.env_step, parts, counters_of(ctx), meta_of(job, ctx))
        store.prune()

    def save_best(ctx: Context) -> None:
        keep_best(run, job, agent.parts(), counters_of(ctx), ctx.evaluation.mean)

    with (
        Task() as task,
        MetricsWriter(
            run,
            resume_from=start_from.step if start_from and options.resume else None,
            sinks=metric_sinks(run, options),
        ) as writer,
    ):
        if start_from is not None and options.resume:
            agent.load_parts({name: start_from.parts[name] for name in PARTS})
            if "episodes" in start_from.parts:  # not in one of an earlier version
                episodes.load_state_dict(start_from.parts["episodes"])
            if "replay" in start_from.parts:
                buffer.load_state_dict(start_from.parts["replay"])
            if "collector" in start_from.parts:
                collector.load_state_dict(start_from.parts["collector"])
                buffer.cut_episodes(collector.restarted)
            else:  # it was trained on several nodes, whose episodes ended with them
                collector.envstep = int(start_from.counters["env_step"])
                buffer.cut_episodes()
            task.ctx.keep("env_step", "train_iter")
            task.ctx.update(start_from.counters)
        elif start_from is not None:
            agent.load_parts({"policy": start_from.parts["policy"]})
        first_step = collector.envstep
        task.use(Progress(job.env_steps, quiet=options.quiet))
        task.use(middleware.checkpoint(save, options.checkpoint_every))
        task.use(
            middleware.log_metrics(writer, episodes, checkpoint_every=options.checkpoint_every)
        )
        task.use(middleware.evaluate(evaluator, options.eval_every, save_best, run.best.score()))
        task.use(middleware.collect(collector, buffer, agent.epsilon))
        task.use(middleware.train(learner, buffer, cfg.updates_per_train, agent.beta))
        task.use(middleware.guard(store.last))
        task.use(
            middleware.stop_after(
                job.env_steps, options.seconds, started, lambda: evaluator.last_seconds
            )
        )
        task.use(stop.middleware())
        with middleware.guarded(task, store.last):
            ctx = task.run()
    collector.close()
    return replace(result_of(job, ctx, agent, started, first_step), policy=agent)
