"""DQN with one shared agent and several workers: one program, three ways to run it.

    python examples/shared_agent_dqn.py --backend single     one worker, in this process
    python examples/shared_agent_dqn.py --backend local      workers in separate processes
    python examples/shared_agent_dqn.py --backend ray        the same on a Ray cluster

    workers: newest weights -> some steps -> own replay -> gradient ──┐
       └──────────<── weights, by version ──<── ShareAgent: Adam <────┘ each gradient exactly once

Workers send gradients, not weights, so that of two simultaneous updates none is lost, and the
optimiser's state stays in one place. The episodes of all workers count towards one budget.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from safetensors.numpy import load_file, save_file

from muster import Context, Middleware, Parallel, Task, middleware
from muster.algos.dqn import DQN, DQNConfig
from muster.data import ReplayBuffer
from muster.envs import make_envs
from muster.flow import ParameterServer
from muster.seeding import derive_seed
from muster.workers import Collector, evaluate_policy
from muster.workers.episode_log import EndedEpisodes
from muster.workers.gradient_worker import Contribution

SHARE, WORK = ["standalone", "role.share"], ["standalone", "role.worker"]
STEPS_PER_UPDATE = 2
LEARN = DQNConfig(
    hidden=(64, 64), lr=1e-3, target_update=200, learning_starts=500, eps_end=0.02, eps_decay=3_000
)


@dataclass(frozen=True)
class Config:
    """Train one shared agent."""

    env: str = "CartPole-v1"
    """Id of a Gymnasium environment with discrete actions."""
    backend: Literal["single", "local", "ray"] = "single"
    """Where workers run."""
    n_workers: int = 2
    """Number of workers; `single` always has one."""
    episodes: int = 200
    """Total number of episodes of all workers."""
    eval_every: int = 25
    """Episodes between two evaluations of the shared agent."""
    eval_episodes: int = 10
    """Episodes in each evaluation."""
    seed: int = 0
    """Seed of everything; each worker derives its own seed from it."""
    folder: Path = Path("runs/shared_agent_dqn")
    """Directory for the best model and the results."""
    load_checkpoint: Path | None = None
    """A model to start from."""

    @property
    def workers(self) -> int:
        """Number of workers."""
        return 1 if self.backend == "single" else self.n_workers


class ShareAgent:
    """The weights that all workers train together, and the optimiser that changes them."""

    stats = ("loss", "q_mean", "td_error_mean")

    def __init__(self, cfg: Config, server: ParameterServer) -> None:
        with make_envs(cfg.env) as envs:
            spaces = envs.single_observation_space, envs.single_action_space
        self.agent = DQN(LEARN, *spaces, cfg.seed)
        self._server = server
        if cfg.load_checkpoint is not None:
            self.load_model(cfg.load_checkpoint)

    @property
    def train_iter(self) -> int:
        """Number of updates so far."""
        return self.agent.train_iter

    def get_parameters(self) -> dict[str, Any]:
        """Return a copy of the weights."""
        return dict(self.agent.parts()["policy"])

    def receive_parameters(self, update: dict[str, Any]) -> float:
        """Apply a gradient that a worker computed."""
        return self.agent.apply_gradient(update)

    def use_gradient(self, gradient: dict[str, Any], env_step: int) -> float:
        """Apply a gradient; `middleware.apply_gradients` calls this."""
        return self.receive_parameters(gradient)

    def publish(self, env_step: int) -> None:
        """Send the current weights to the workers."""
        self._server.push(self.get_parameters(), env_step=env_step, train_iter=self.train_iter)

    def save_model(self, path: Path) -> None:
        """Write the weights to a safetensors file, atomically."""
        aside = path.with_suffix(".partial")
        save_file(self.get_parameters(), aside)
        aside.replace(path)

    def load_model(self, path: Path) -> None:
        """Load the weights of a file."""
        self.agent.load_parts({"policy": load_file(path)})


@dataclass
class Recorder:
    """Statistics over all workers. Only the process of the shared agent counts."""

    env_step: int = 0
    returns: list[float] = field(default_factory=list)
    """Returns of all episodes, in the order in which they ended."""
    evaluations: dict[int, float] = field(default_factory=dict)
    """Mean return of the shared agent, by the number of episodes."""
    best_reward: float | None = None
    """The best evaluation. None at first, not 0: returns may all be negative."""

    @property
    def episodes(self) -> int:
        """Number of episodes of all workers."""
        return len(self.returns)


class Worker:
    """A worker that acts and learns, with its own environment, replay and random numbers."""

    def __init__(self, cfg: Config, number: int, incarnation: int) -> None:
        seed = derive_seed(cfg.seed, "worker", number, incarnation)
        envs = make_envs(cfg.env, 1, seed)
        spaces = envs.single_observation_space, envs.single_action_space
        self.agent = DQN(LEARN, *spaces, seed)
        self.updates = 0
        """Number of gradients so far."""
        self._collector = Collector(self.agent, envs, steps=STEPS_PER_UPDATE)
        self._replay = ReplayBuffer(
            LEARN.buffer_size // cfg.workers,
            *spaces,
            num_envs=1,
            min_size=LEARN.learning_starts // cfg.workers,
            seed=derive_seed(seed, "replay"),
        )

    def follow(self, weights: dict[str, Any], train_iter: int) -> None:
        """Continue with the weights that all workers trained."""
        self.agent.follow(weights, train_iter)

    def contribute(self, env_step: int) -> Contribution:
        """Take some steps, and return the contribution to the shared agent."""
        eps = self.agent.epsilon(env_step)
        # Truncation at the time limit is not stored as an end: the next state still has a value.
        self._replay.push(self._collector.collect(policy_kwargs={"eps": eps}))
        batch = self._replay.sample(LEARN.batch_size)
        gradient, metrics = (None, {}) if batch is None else self.agent.gradient(batch)
        self.updates += gradient is not None
        return Contribution(
            gradient,
            np.array([metrics.get(name, 0.0) for name in ShareAgent.stats]),
            STEPS_PER_UPDATE,
            EndedEpisodes.of([(e.return_, e.length) for e in self._collector.take_episodes()]),
            self.agent.train_iter,
        )


def record(agent: ShareAgent, recorder: Recorder, cfg: Config) -> Middleware:
    """Count, evaluate, publish, and end when the budget is used up."""

    def _record(ctx: Context) -> None:
        before = recorder.episodes
        recorder.env_step = ctx.env_step
        recorder.returns += ctx.episodes.returns
        if recorder.episodes // cfg.eval_every > before // cfg.eval_every:
            evaluate(agent, recorder, cfg)
        agent.publish(ctx.env_step)
        ctx.finish = recorder.episodes >= cfg.episodes

    return _record


def evaluate(agent: ShareAgent, recorder: Recorder, cfg: Config) -> None:
    """Evaluate the shared weights, and save exactly these weights if none were better."""
    mean = evaluate_policy(agent.agent, cfg.env, cfg.eval_episodes, cfg.seed).mean
    recorder.evaluations[recorder.episodes] = mean
    if recorder.best_reward is None or mean > recorder.best_reward:
        recorder.best_reward = mean
        agent.save_model(cfg.folder / "best.safetensors")


def main(cfg: Config) -> dict[str, Any]:
    """Run the shared agent, or a worker, or both; the shared agent returns the results."""
    with Task() as task:
        router = task.router
        task.ctx.share("total_step")  # weights and gradients have their own channels
        task.ctx.keep("env_step", "train_iter")
        task.ctx.update(env_step=0, train_iter=0)
        server = ParameterServer(home="role.share")
        recorder = Recorder()
        if not router.is_active or router.role == "worker":
            worker = Worker(cfg, router.node_id, router.incarnation)
            task.use(middleware.contribute(worker, server), filter_labels=WORK)
        if not router.is_active or router.role == "share":
            agent = ShareAgent(cfg, server)
            agent.publish(0)
            sent = middleware.take_gradients(lambda: [each for _, each in server.take_gradients()])
            task.use(sent, filter_labels=SHARE)
            task.use(middleware.apply_gradients(agent), filter_labels=SHARE)
            task.use(record(agent, recorder, cfg), filter_labels=SHARE)
        task.run()
    if router.is_active and router.role != "share":
        return {"updates": worker.updates}
    result = {
        "returns": recorder.returns,
        "evaluations": recorder.evaluations,
        "best_reward": recorder.best_reward,
        "env_steps": recorder.env_step,
        "updates": agent.train_iter,
    }
    (cfg.folder / "results.json").write_text(json.dumps(result))
    return result


def train(cfg: Config) -> dict[str, Any]:
    """Run the program as configured, and return the results."""
    cfg.folder.mkdir(parents=True, exist_ok=True)
    if cfg.backend == "single":
        return main(cfg)
    roles = {"share": 1, "worker": cfg.workers}
    runner = Parallel.runner(
        roles=roles, engine=cfg.backend, on_failure={"worker": "restart"}, threads=1
    )
    result, *workers = runner(main, cfg)
    return {**result, "sent": [worker["updates"] for worker in workers]}


if __name__ == "__main__":
    config = tyro.cli(Config)
    found = train(config)
    for episodes, mean in found["evaluations"].items():
        print(f"episodes {episodes:4d}  return {mean:6.1f}")
    steps, updates = found["env_steps"], found["updates"]
    print(f"{len(found['returns'])} episodes, {steps} steps, {updates} updates")
    print(f"best return {found['best_reward']:.1f}, saved {config.folder / 'best.safetensors'}")
