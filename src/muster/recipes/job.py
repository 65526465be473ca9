"""The job that every node of a training program receives, and the result of a run."""

import time
from dataclasses import dataclass
from typing import Any, Protocol

import cloudpickle
import gymnasium as gym

from muster.devices import device_in_turn
from muster.envs import VectorEnv, make_envs
from muster.envs.setup import EnvSetup
from muster.framework import Context
from muster.framework.driver import DriverLink
from muster.framework.node import elastic_nodes_away, nodes_here, replacements
from muster.recipes.algorithms import make_agent
from muster.recipes.env_options import setup_of
from muster.recipes.eval_env import eval_backend, eval_setup
from muster.recipes.models import load_model
from muster.recipes.options import TrainOptions
from muster.recipes.own_code import OwnCode
from muster.recipes.own_modules import modules_here
from muster.recipes.resources import parse_resources
from muster.recipes.result import RunResult
from muster.recipes.worker_range import WorkerRange, elastic_range, range_of
from muster.run import Checkpoint, RunDirectory

Spaces = tuple[gym.Space[Any], gym.Space[Any]]
"""The spaces of one observation and of one action."""

FIRST_PARTS = "first_parts"
"""In the metadata of a checkpoint that a run starts from: its parts to start from."""
_LAST_EVALUATION = 0.1
_LEAST_EVALUATION_SECONDS = 1.0
"""The minimum time for an evaluation, as a fraction of `--seconds` and in seconds: the last
evaluation begins when `--seconds` are nearly over."""


@dataclass(frozen=True)
class Job:
    """The job that every node receives."""

    algo: str
    env: str
    cfg: Any
    """The algorithm's configuration."""
    options: TrainOptions
    workers: int
    """Processes; 0 if one process does everything."""
    run_dir: str
    start_from: str | None
    """A checkpoint: with `options.resume` the state to resume from, else the first policy."""
    terminal: str | None = None
    """The terminal device that shows progress; None if standard error is not a terminal."""
    own_code: OwnCode | None = None
    """Code that nodes cannot import; None if there are no nodes."""
    handed: Checkpoint | None = None
    """The state to start from, if rank 0 has handed it over: then there is no file."""
    paced: bool = False
    """Whether the run waits at a gate for its driver, a `Trainer`."""
    driver: DriverLink | None = None
    """The link to that driver; nodes have one of their own, to the process that started them."""

    @property
    def elastic(self) -> WorkerRange | None:
        """The range of the number of processes, if they may join and leave during the run."""
        return elastic_range(self.options.workers, self.options.engine)

    def present(self, role: str, most: int) -> int:
        """Return how many nodes of the acting role are present, of at most `most`."""
        return most if self.elastic is None else len(nodes_here(role))

    @property
    def replicas(self) -> int:
        """Processes that learn with the learner; 0 in step, where every worker learns."""
        learners = self.options.learners
        return 0 if learners is None or self.cfg.PROGRAM == "in_step" else learners - 1

    @property
    def on_nodes(self) -> bool:
        """Whether separate processes do the work, not this one."""
        return bool(self.workers or self.replicas)

    def arrive(self) -> None:
        """Load and register the code that the job names, in this process."""
        if self.own_code is not None:
            self.own_code.install(self.algo, self.cfg.model)
        load_model(self.cfg.model)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the configuration by value if its class is in a script: nodes cannot import it."""
        return {**self.__dict__, "cfg": cloudpickle.dumps(self.cfg), "driver": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was sent."""
        with modules_here():
            self.__dict__.update(state, cfg=cloudpickle.loads(state["cfg"]))

    @property
    def setup(self) -> EnvSetup | str:
        """The argument for `make_envs`: the id, with arguments and wrappers if there are any."""
        return setup_of(self.env, self.options)

    @property
    def eval_setup(self) -> EnvSetup | str:
        """As `setup`, for the environments of evaluations."""
        return eval_setup(self.env, self.options)

    @property
    def eval_backend(self) -> str:
        """The backend of evaluations."""
        return eval_backend(self.options)

    @property
    def env_steps(self) -> int:
        """Total environment steps of the run."""
        asked = self.options.env_steps
        steps: int = self.cfg.horizon if asked is None else asked
        return steps

    def runner_options(self, run: RunDirectory) -> dict[str, Any]:
        """Return the options of `Parallel.runner` that are the same for every program."""
        options = self.options
        return {
            "log_dir": run.logs,
            "engine": options.engine,
            "address": options.address,
            "quiet": options.quiet,
            "resources": parse_resources(options.resources) or None,
            "driver": self.driver,
        }

    def make_learner(
        self, spaces: Spaces | None = None, seed: int | None = None, member: int = 0
    ) -> Any:
        """Make an agent that learns, on the run's device.

        A process that only acts or evaluates uses `make_agent`, on the CPU.

        Args:
            spaces: Spaces of the environment, if already known.
            seed: Seed of the agent; by default the run's seed.
            member: The number of this process among those that learn: each has its own device.
        """
        seed = self.options.seed if seed is None else seed
        where = device_in_turn(self.options.device, member)
        return make_agent(self.algo, self.cfg, spaces or self.spaces(), seed, where)

    def make_envs(self, count: int = 1, seed: int | None = None, first_env: int = 0) -> VectorEnv:
        """Make environments of the run, on its backend; by default with its seed."""
        seed = self.options.seed if seed is None else seed
        backend = self.options.backend
        return make_envs(self.setup, count, seed, backend=backend, first_env=first_env)

    def spaces(self) -> Spaces:
        """Return the spaces of one observation and one action of the run's environment."""
        with self.make_envs() as envs:
            return envs.single_observation_space, envs.single_action_space

    def evaluation_seconds(self, started: float) -> float:
        """Return the maximum duration of an evaluation that begins now, in seconds.

        Args:
            started: When the command began to train, by `time.monotonic`.
        """
        longest, limit = self.options.eval_seconds, self.options.seconds
        if limit is None:
            return longest
        left = limit - (time.monotonic() - started)
        return min(longest, max(left, _LAST_EVALUATION * limit, _LEAST_EVALUATION_SECONDS))

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint to start from; None if there is none."""
        if self.handed is not None:
            return self.handed
        return None if self.start_from is None else load_checkpoint(self.start_from)


class Hashed(Protocol):
    """A policy whose weights have a hash."""

    def policy_sha256(self) -> str:
        """Return the hash."""


def load_checkpoint(path: str) -> Checkpoint:
    """Load a checkpoint of a run by its path."""
    run = RunDirectory.open(path)
    return run.checkpoints.load(run.checkpoint)


def first_parts_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the parts that a new run starts from: of another run's checkpoint, the policy."""
    names = checkpoint.meta.get(FIRST_PARTS, ["policy"])
    return {name: checkpoint.parts[name] for name in names}


def result_of(
    job: Job, ctx: Context, agent: Hashed, started: float, first_step: int, paused: float = 0.0
) -> RunResult:
    """Return the result of a run.

    Args:
        job: The job of the run.
        ctx: The last context.
        agent: The trained agent.
        started: When this process began, by `time.monotonic`.
        first_step: Environment steps made before `started`.
        paused: Seconds in which the run waited for its driver.
    """
    seconds = time.monotonic() - started - paused
    evaluation = ctx.get("evaluation")
    asked = range_of(job.options.workers)
    return RunResult(
        algo=job.algo,
        env=job.env,
        seed=job.options.seed,
        workers=job.workers - elastic_nodes_away(),
        env_steps=ctx.env_step,
        train_iter=ctx.train_iter,
        seconds=seconds,
        env_steps_per_s=(ctx.env_step - first_step) / seconds,
        eval_return_mean=evaluation.mean if evaluation else None,
        eval_return_std=evaluation.std if evaluation else None,
        eval_episodes=evaluation.episodes if evaluation else 0,
        policy_sha256=agent.policy_sha256(),
        stopped_by=ctx.get("stopped_by", "target"),
        run_dir=RunDirectory.join(job.run_dir).path,
        policy=None,
        backend=job.options.backend,
        replacements=replacements() or 0,
        workers_range=None if asked is None else (asked.low, asked.high),
    )
