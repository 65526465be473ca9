"""The tutorial's three middleware with muster's own workers: DQN learns to balance CartPole-v1.

The program has the same shape as `tutorial/stage_4_context.py`, with a real environment and a real
network. For everything else that a run needs (checkpoints, metrics, resume) see `muster train` and
its program, `muster/recipes/replay.py`.
"""

from collections.abc import Callable, Generator

import torch

from muster import Context, Middleware, Task
from muster.algos.dqn import DQN, DQNConfig
from muster.data import ReplayBuffer
from muster.envs import make_envs
from muster.rl_utils import get_epsilon_greedy_fn
from muster.workers import Collector, Evaluator, Learner

SEED = 2
NUM_ENVS = 8
UPDATES_PER_COLLECT = 64


def evaluate(evaluator: Evaluator) -> Middleware:
    """Evaluate from time to time, and stop when the pole stays up."""

    def _evaluate(ctx: Context) -> None:
        ctx.setdefault("train_iter", 0)
        ctx.setdefault("envstep", 0)
        if evaluator.should_eval(ctx.train_iter):
            stop, reward = evaluator.eval(None, ctx.train_iter, ctx.envstep)
            print(f"train_iter {ctx.train_iter:6d}  envstep {ctx.envstep:6d}  return {reward:5.1f}")
            if stop:
                ctx.finish = True

    return _evaluate


def collect(
    epsilon_greedy: Callable[[float], float], collector: Collector, replay_buffer: ReplayBuffer
) -> Middleware:
    """Take some steps and store them."""

    def _collect(ctx: Context) -> None:
        ctx.keep("envstep")
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=ctx.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        ctx.envstep = collector.envstep

    return _collect


def train(learner: Learner, replay_buffer: ReplayBuffer) -> Middleware:
    """Learn from the stored steps, and save at the end."""

    def _train(ctx: Context) -> Generator[None, None, None]:
        ctx.keep("train_iter")
        for _ in range(UPDATES_PER_COLLECT):
            batch_size = learner.policy.get_attribute("batch_size")
            train_data = replay_buffer.sample(batch_size, learner.train_iter)
            if train_data is not None:
                learner.train(train_data, ctx.envstep)
        ctx.train_iter = learner.train_iter
        yield
        if ctx.finish:
            learner.save_checkpoint()

    return _train


def main() -> None:
    torch.set_num_threads(1)
    envs = make_envs("CartPole-v1", NUM_ENVS, SEED)
    config = DQNConfig(hidden=(64, 64), lr=1e-3, target_update=200)
    spaces = envs.single_observation_space, envs.single_action_space
    agent = DQN(config, *spaces, seed=SEED)
    replay_buffer = ReplayBuffer(100_000, *spaces, num_envs=NUM_ENVS, min_size=1_000, seed=SEED)
    collector = Collector(agent, envs, steps=8)
    learner = Learner(agent, save=lambda: print(f"policy {agent.policy_sha256()[:12]}"))
    evaluator = Evaluator(agent, "CartPole-v1", every=2_000, episodes=100, stop_at=475, seed=SEED)
    epsilon_greedy = get_epsilon_greedy_fn(1.0, 0.04, 4_000, "linear")

    with Task() as task:
        task.use(evaluate(evaluator))
        task.use(collect(epsilon_greedy, collector, replay_buffer))
        task.use(train(learner, replay_buffer))
        task.run(max_step=2_000)


if __name__ == "__main__":
    main()
