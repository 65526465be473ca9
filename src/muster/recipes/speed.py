"""`Speed`: how close to the machine's limit a run was, and what limited it.

    each loop:  seconds of the loop, less those of evaluations and checkpoints
    at the end: calibration, in step on all workers at once, so that cores are as busy as in
                training -> rho, eta, limited_by

Nothing is measured between loops, so bare environments cannot affect training. A `Work` describes
the work of one program.
"""

import statistics
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from muster.container import whole_cores
from muster.data.slots import SlotPlan, nbytes
from muster.devices import HOST, Device
from muster.framework import Context, Middleware
from muster.framework.wrapper import StepTimer
from muster.nets.flops import count_products
from muster.recipes.job import Job
from muster.workers.limits import Calibration, Limits, Split, waited_for_a_core
from muster.workers.slot_worker import SlotWorker

_APART = ("_evaluate", "_checkpoint", "_gate")
"""Middleware whose time does not count as training."""
_WAITING = ("_receive", "_receive_unrolls", "_take_gradients")
"""Middleware that waits for others."""
_LEAST_S, _MOST_S = 0.15, 2.0
_LOOPS_KEPT = 1_000
"""The latest loops, whose times show how much loops differ."""


class Share(NamedTuple):
    """One process's share of a run."""

    envs: int
    """Environments for calibration."""
    first_env: int
    """The number of the first of these environments."""
    rows: int
    """Rows of one gradient."""
    row_bytes: int
    """Bytes that a step writes, and that its samples copy."""
    block_bytes: int
    """Bytes that are written at once."""
    sent_bytes: int = 0
    """Bytes of a step that an actor sends; 0 if nothing is sent."""


class Work(Protocol):
    """The work to measure: one process of a training program."""

    agent: Any
    """The agent that acts and learns."""

    @property
    def processes(self) -> int:
        """Number of processes that share the work."""

    @property
    def is_first(self) -> bool:
        """Whether this process reports for the run."""

    @property
    def spent(self) -> tuple[float, float, float, float]:
        """Seconds so far: in environments, on actions, on learning, on waiting for others."""

    def share(self, samples_per_step: float) -> Share:
        """Return this process's share of the run, for this many update samples per step."""


class InStepWork:
    """One of equal workers.

    Args:
        worker: Collects and learns.
        job: The job of the run.
    """

    def __init__(self, worker: SlotWorker, job: Job) -> None:
        self.agent = worker.agent
        self._worker = worker
        self._cfg = job.cfg

    @property
    def processes(self) -> int:
        """Number of workers."""
        return self._worker.team.size

    @property
    def is_first(self) -> bool:
        """Whether this is the first worker."""
        return self._worker.is_first

    @property
    def spent(self) -> tuple[float, float, float, float]:
        """Seconds so far: in environments, on actions, on learning, on waiting for others."""
        rollouts, group = self._worker.rollouts, self._worker.group
        env, act = rollouts.actor.env_seconds, rollouts.actor.act_seconds
        if self._cfg.lag:  # collected on another thread: only the time spent waiting for it counts
            env, act = self._worker.ahead_seconds, 0.0
        return env, act, group.learn_seconds, group.wait_seconds

    def share(self, samples_per_step: float) -> Share:
        """Return the slots of this worker. Samples are learnt from in place."""
        team, plan = self._worker.team, self._worker.plan
        mine = plan.share(team.index, team.size)
        width = len(mine) * plan.width
        row_bytes = nbytes(plan.fields()) // (plan.steps * plan.envs)
        return Share(
            width,
            mine.start * plan.width,
            plan.steps * plan.width // self._cfg.passes()[1],
            row_bytes,
            row_bytes * plan.steps * width,
        )


class ExperienceSource(Protocol):
    """The source of experience of a learner that does not collect in step."""

    @property
    def processes(self) -> int:
        """Number of processes that collect and learn."""

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds spent here in the environments, and on choosing actions."""


class TimedLearner(Protocol):
    """Takes gradient steps."""

    @property
    def learn_seconds(self) -> float:
        """Seconds spent on gradient steps so far."""


class ReplayWork:
    """A learner with replay: alone, or with actors that it waits for.

    Args:
        job: The job of the run.
        agent: The agent that learns.
        source: The source of experience.
        learner: Takes the gradient steps.
    """

    is_first = True

    def __init__(
        self, job: Job, agent: Any, source: ExperienceSource, learner: TimedLearner
    ) -> None:
        self.agent = agent
        self._job = job
        self._source = source
        self._learner = learner

    @property
    def processes(self) -> int:
        """Number of processes: the learner, its replicas, and the actors if there are any."""
        return self._source.processes + self._job.replicas

    @property
    def spent(self) -> tuple[float, float, float, float]:
        """Seconds so far. `Speed` itself measures how long the learner waited."""
        return (*self._source.seconds, self._learner.learn_seconds, 0.0)

    def share(self, samples_per_step: float) -> Share:
        """Return the bytes that a step moves: into replay, and out in batches, with next obs."""
        obs, action = _bytes(self.agent.obs_space), _bytes(self.agent.action_space)
        stored = obs + action + 5
        row_bytes = stored + round(samples_per_step * (2 * obs + action + 12))
        rows: int = self._job.cfg.batch_size
        envs = self._job.options.num_envs
        return Share(envs, 0, rows, row_bytes, rows * row_bytes, stored)


class StreamWork(ReplayWork):
    """A learner of unrolls or gradients: its own, or those of nodes that it waits for.

    Args:
        job: The job of the run.
        agent: The agent that learns.
        source: The source of unrolls.
        learner: Takes the gradient steps.
        plan: The plan of a batch.
    """

    def __init__(
        self,
        job: Job,
        agent: Any,
        source: ExperienceSource,
        learner: TimedLearner,
        plan: SlotPlan,
    ) -> None:
        super().__init__(job, agent, source, learner)
        self._plan = plan

    def share(self, samples_per_step: float) -> Share:
        """Return the bytes that a step moves: into its batch, once."""
        rows = self._plan.steps * self._plan.envs
        row_bytes = nbytes(self._plan.fields()) // rows
        envs = self._job.options.num_envs
        return Share(envs, 0, rows, row_bytes, rows * row_bytes, row_bytes)


def _bytes(space: gym.Space[Any]) -> int:
    """Return the bytes of one observation or action."""
    if isinstance(space, gym.spaces.Dict):
        return sum(map(_bytes, space.values()))
    return int(np.prod(space.shape or (), dtype=int)) * np.dtype(space.dtype).itemsize


class Speed:
    """A step wrapper that measures one process: `task.use_step_wrapper(speed)`.

    Args:
        work: The work of this process.
        job: The job of the run.
        first_step: Environment steps before the first loop.
    """

    def __init__(self, work: Work, job: Job, first_step: int = 0) -> None:
        self._work = work
        self._job = job
        self._timer = StepTimer(print_per_step=0)
        self._warm = False
        self._env_step = first_step
        self._begin()

    def __call__(self, fn: Middleware) -> Middleware:
        """Time a middleware. The task calls this."""
        return self._timer(fn)

    def end_loop(self, ctx: Context, seconds: float) -> None:
        """Record the time of a loop. The task calls this."""
        self._timer.end_loop(ctx, seconds)
        steps = self._timer.summary()
        spent = seconds - sum(steps[name]["last"] for name in _APART if name in steps)
        self._train_s += spent
        self._loop_s.append(spent)
        self._waited += sum(steps[name]["last"] for name in _WAITING if name in steps)
        self._loops += 1
        self._env_step = ctx.get("env_step", self._env_step)
        # The first loop that learns compiles kernels and fills caches; earlier ones fill replay.
        learns = self._work.agent.train_iter > self._updates
        if not self._warm and learns and not ctx.finish:
            self._warm = True
            self._begin()

    def measured(self, hurry: bool = False) -> dict[str, Any]:
        """Calibrate, and return `rho`, `eta`, `limited_by` and `speed` of a `RunResult`.

        Args:
            hurry: Someone waits for the end of the run: calibrate for the minimum time.
        """
        if not self._loops:
            return {}
        processes = self._work.processes
        cores = min(processes * self._work.agent.threads, whole_cores())
        if processes > cores and not self._work.is_first:
            return {}  # calibrating here would take the core of the first worker
        steps = self._env_step - self._first_step
        if not steps:
            return {}
        steps_per_s = steps / self._train_s
        split = self._split()
        device: Device = getattr(getattr(self._work.agent, "weights", None), "device", HOST)
        # The actual number: a limit on the divergence may end learning early.
        updates = self._work.agent.train_iter - self._updates
        epochs = updates * self._job.cfg.rows_of_update(self._job.options.num_envs) / steps
        speed: dict[str, Any] = {
            "steps_per_s": steps_per_s,
            "cores": cores,
            "epochs": epochs,
            "split": split.shares,
            "busy_elsewhere": self._busy_elsewhere(),
            "warm": self._warm,
            "train_s": self._train_s,
            "loops": self._loops,
            "loop_spread": spread(self._loop_s),
            "weight_bytes": _weight_bytes(self._work.agent),
            "by_torch": getattr(self._work.agent, "by_torch", None) if device.is_host else None,
            "device": device.name,
        }
        found: dict[str, Any] = {"limited_by": split.limited_by, "speed": speed}
        try:
            spend = _LEAST_S if hurry else calibration_seconds(self._train_s)
            mine = self._work.share(epochs)
            limits = self._limits(spend, mine)
        except Exception:
            # A run that has ended well must not fail because of a bare environment.
            return found
        speed["bare_steps_per_s"] = limits.bare_steps_per_s(cores)
        speed.update(asdict(limits), sent_bytes=mine.sent_bytes)
        found["rho"] = limits.rho(steps_per_s, cores)
        if device.is_host:  # the bound is that of the CPU's cores
            speed["bound_steps_per_s"] = limits.bound_steps_per_s(cores, epochs)
            found["eta"] = limits.eta(steps_per_s, cores, epochs)
        return found

    def _begin(self) -> None:
        """Restart all counts."""
        self._loops = 0
        self._train_s = 0.0
        self._loop_s: deque[float] = deque(maxlen=_LOOPS_KEPT)
        self._since = time.perf_counter()
        self._spent = self._work.spent
        self._waited = 0.0
        self._lost = waited_for_a_core()
        self._updates: int = self._work.agent.train_iter
        self._first_step = self._env_step

    def _split(self) -> Split:
        pairs = zip(self._work.spent, self._spent, strict=True)
        env, act, learn, wait = (now - before for now, before in pairs)
        return Split.of(self._train_s, env, act, learn, wait + self._waited)

    def _busy_elsewhere(self) -> float:
        """Return the fraction of the time in which other programs had this process's core."""
        return (waited_for_a_core() - self._lost) / (time.perf_counter() - self._since)

    def _limits(self, seconds: float, mine: Share) -> Limits:
        """Measure the cost of a step here, with this process's kind of environments."""
        agent, job = self._work.agent, self._job
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # training has already shown all warnings
            calibration = Calibration(
                lambda: job.make_envs(mine.envs, first_env=mine.first_env),
                count_products(agent.model, agent.obs_space),
                rows=mine.rows,
                row_bytes=mine.row_bytes,
                block_bytes=mine.block_bytes,
                passes=agent.passes_of_sample,
            )
            try:
                calibration.spend(seconds)
                return calibration.limits()
            finally:
                calibration.close()


def spread(times: Sequence[float]) -> float:
    """Return the relative standard deviation of the times of loops, as their quartiles show it.

    The quartiles of a normal distribution are 1.349 standard deviations apart. They ignore the few
    loops that something else interrupted.
    """
    if len(times) < 4:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / (1.349 * middle) if middle > 0 else 0.0


def _weight_bytes(agent: Any) -> int:
    """Return the bytes of the weights that act; 0 if an agent of a user does not tell."""
    vector = getattr(getattr(agent, "weights", None), "vector", None)
    return int(getattr(vector, "nbytes", 0))


def calibration_seconds(train_seconds: float) -> float:
    """Return how long to calibrate: 5 % of a short run, 2 % of a long one, at most two seconds."""
    short = min(0.05 * train_seconds, 1.0)
    return min(max(_LEAST_S, short, 0.02 * train_seconds), _MOST_S)
