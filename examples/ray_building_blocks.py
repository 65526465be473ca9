"""Distributed RL from building blocks on Ray: parameter server, replay, workers and learners.

    python examples/ray_building_blocks.py --num-workers 2 --num-learners 2

Without `--address` the program starts its own small Ray cluster, and ends it. Every learner sends
its gradients to the parameter server, which applies each gradient once: with several learners, no
learner's work is lost. If a worker or learner fails, the run ends with its error message.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from muster.actors import (
    BlockError,
    Learner,
    ParameterServer,
    ReplayBuffer,
    RolloutWorker,
    cluster,
    finish,
)
from muster.algos.dqn import DQN, DQNConfig
from muster.envs import make_envs
from muster.rl_utils import get_epsilon_greedy_fn
from muster.workers import evaluate_policy

CFG = DQNConfig(hidden=(64, 64), lr=1e-3, target_update=200)
SAMPLES_PER_STEP = 16.0
"""Transitions learnt from per collected transition: one update for every four steps."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    env_steps: int
    updates: dict[int, int]
    """Number of applied gradients of each learner."""
    mean_return: float
    weights: Path


def main(
    env: str = "CartPole-v1",
    epochs: int = 4,
    steps_per_epoch: int = 5_000,
    replay_size: int = 100_000,
    random_exploration_steps: int = 1_000,
    max_ep_len: int = 1_000,
    num_workers: int = 2,
    num_learners: int = 1,
    worker_update_freq: int = 50,
    shards: int = 1,
    seed: int = 0,
    weights: Path = Path("weights.safetensors"),
    address: str | None = None,
) -> Result:
    """Train DQN with workers and learners that do not wait for each other.

    Args:
        env: Id of a Gymnasium environment with discrete actions.
        epochs: Number of evaluations.
        steps_per_epoch: Environment steps between them, of all workers together.
        replay_size: Capacity of the replay buffer, in transitions.
        random_exploration_steps: Uniformly random steps at the start, of all workers together.
        max_ep_len: Maximum number of steps of an episode.
        num_workers: Actors that collect experience.
        num_learners: Actors that learn from it.
        worker_update_freq: Number of updates after which workers fetch new weights.
        shards: Number of actors that hold the replay.
        seed: Seed of everything random.
        weights: File to save the final weights to.
        address: HOST:PORT of a running Ray cluster. None: start one.
    """
    with make_envs(env) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
    agent = DQN(CFG, *spaces, seed)
    with cluster(address, num_cpus=num_workers + num_learners):
        server = ParameterServer(agent.parts()["policy"], CFG.lr, max_lag=2 * num_learners)
        buffer = ReplayBuffer(
            *spaces,
            replay_size,
            shards=shards,
            samples_per_insert=SAMPLES_PER_STEP,
            min_size=min(random_exploration_steps + CFG.batch_size, replay_size),
            seed=seed,
        )
        workers = [
            RolloutWorker(
                env,
                partial(DQN, CFG),
                server,
                buffer,
                worker=k,
                seed=seed,
                random_steps=random_exploration_steps,
                max_ep_len=max_ep_len,
                epsilon=get_epsilon_greedy_fn(1.0, 0.04, 8_000, "linear"),
                update_freq=worker_update_freq,
                max_restarts=3,
            )
            for k in range(num_workers)
        ]
        make_agent = partial(DQN, CFG, *spaces, seed)
        learners = [
            Learner(make_agent, server, buffer, learner=k, batch_size=CFG.batch_size)
            for k in range(num_learners)
        ]
        learning = [learner.train() for learner in learners]
        for epoch in range(1, epochs + 1):
            share = epoch * steps_per_epoch // num_workers
            reports = finish([worker.rollout(share) for worker in workers], watch=learning)
            if epoch == epochs:
                buffer.seal()
                finish(learning)
            agent.load_policy(server.get_weights())
            found = evaluate_policy(agent, env, episodes=20, seed=seed)
            env_steps = sum(report.steps for report in reports)
            updates = server.counts()["gradients"]
            print(f"env_steps {env_steps:6d}  updates {updates:6d}  return {found.mean:6.1f}")
        counts = server.counts()
        saved = server.save_weights(weights)
        print(
            f"updates {counts['applied']}  lag of gradients {counts['lag_min']} to "
            f"{counts['lag_max']}  saved {saved}"
        )
        return Result(env_steps, counts["applied"], found.mean, saved)


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except BlockError as error:
        sys.exit(f"{error}\n\n{error.remote_traceback}")
