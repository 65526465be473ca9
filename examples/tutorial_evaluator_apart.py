"""The tutorial's evaluation on a separate node, so that training does not wait for it.

Node 0 collects and trains; the values that its loop leaves in ctx (`state_dict`, `train_iter`,
`envstep`) go to its neighbours. Node 1 evaluates. It waits for new values in one of two ways:

    --how loop   as in the tutorial: look, sleep, look again, and check ctx.finish
    --how wait   task.parallel_ctx.wait(...), which wakes at once and returns None at the end

With `--nodes 1` the same program runs in one process.
"""

import argparse
import time
from collections.abc import Generator

import torch
from tutorial_cartpole import (
    NUM_ENVS,
    SEED,
    UPDATES_PER_COLLECT,
    collect,
)

from muster import Context, Middleware, Parallel, Task
from muster.algos.dqn import DQN, DQNConfig
from muster.data import ReplayBuffer
from muster.envs import make_envs
from muster.rl_utils import get_epsilon_greedy_fn
from muster.workers import Collector, Evaluator, Learner


def take_over(task: Task, ctx: Context, model: torch.nn.Module) -> int:
    """Copy the values that node 0 shared last into this node's model and ctx."""
    shared = task.parallel_ctx.snapshot()  # values of one loop, not of two
    model.load_state_dict(shared["state_dict"])
    ctx.train_iter = shared["train_iter"]
    ctx.envstep = shared["envstep"]
    return int(ctx.train_iter)


def look_again_and_again(task: Task, ctx: Context, last_train_iter: int) -> bool:
    """Wait by polling, as the tutorial does; False when the run is over."""
    while not ctx.finish:
        if task.parallel_ctx.get("train_iter", -1) > last_train_iter:
            return True
        time.sleep(0.01)
    return False


def wait(task: Task, ctx: Context, last_train_iter: int) -> bool:
    """Wait without polling; False when the run is over."""
    return task.parallel_ctx.wait("train_iter", above=last_train_iter) is not None


def evaluate(task: Task, evaluator: Evaluator, model: torch.nn.Module, how: str) -> Middleware:
    """Evaluate from time to time, and stop when the pole stays up."""
    last_train_iter = -1
    wait_for_news = wait if how == "wait" else look_again_and_again

    def _evaluate(ctx: Context) -> None:
        nonlocal last_train_iter
        ctx.keep("envstep", "train_iter")
        ctx.setdefault("envstep", -1)
        ctx.setdefault("train_iter", -1)
        if task.router.is_active:
            if not wait_for_news(task, ctx, last_train_iter):
                return
            last_train_iter = take_over(task, ctx, model)
        if evaluator.should_eval(ctx.train_iter):
            stop, reward = evaluator.eval(None, ctx.train_iter, ctx.envstep)
            print(f"train_iter {ctx.train_iter:6d}  envstep {ctx.envstep:6d}  return {reward:5.1f}")
            if stop:
                ctx.finish = True

    return _evaluate


def train(
    task: Task, learner: Learner, model: torch.nn.Module, replay_buffer: ReplayBuffer
) -> Middleware:
    """Learn, share the weights, and save at the end."""

    def _train(ctx: Context) -> Generator[None, None, None]:
        ctx.keep("train_iter")
        ctx.train_iter = learner.train_iter
        for _ in range(UPDATES_PER_COLLECT):
            batch_size = learner.policy.get_attribute("batch_size")
            train_data = replay_buffer.sample(batch_size, learner.train_iter)
            if train_data is not None:
                learner.train(train_data, ctx.envstep)
        ctx.train_iter = learner.train_iter
        if task.router.is_active:
            ctx.state_dict = model.state_dict()
        yield
        if ctx.finish:
            learner.save_checkpoint()

    return _train


def main(how: str) -> None:
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
        evaluating = evaluate(task, evaluator, agent.model, how)
        collecting = collect(epsilon_greedy, collector, replay_buffer)
        training = train(task, learner, agent.model, replay_buffer)
        task.ctx.setdefault("train_iter", 0)
        task.use(evaluating, filter_labels=["standalone", "node.1"])
        task.use(collecting, filter_labels=["standalone", "node.0"])
        task.use(training, filter_labels=["standalone", "node.0"])
        task.run(max_step=20_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=["loop", "wait"], default="wait")
    parser.add_argument("--nodes", type=int, choices=[1, 2], default=2)
    arguments = parser.parse_args()
    if arguments.nodes == 1:
        main(arguments.how)
    else:
        Parallel.runner(n_parallel_workers=2, topology="star")(main, arguments.how)
