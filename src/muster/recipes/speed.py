"""`Speed`: how close to the machine's limit a run of equal workers was, and what held it back.

    each loop:  seconds of the loop, less those of evaluations and checkpoints
    at the end: calibration on all workers at once, so that cores are as busy as in training
                -> rho, eta, limited_by

Nothing is measured between loops: whatever bare environments do, training is what it was.
"""

import time
import warnings
from dataclasses import asdict
from typing import Any

from muster.container import whole_cores
from muster.data.slots import nbytes
from muster.framework import Context, Middleware
from muster.framework.wrapper import StepTimer
from muster.nets.flops import count_products
from muster.recipes.job import Job
from muster.workers.limits import Calibration, Limits, Split, waited_for_a_core
from muster.workers.slot_worker import SlotWorker

_APART = ("_evaluate", "_checkpoint")
"""Middleware whose time is not that of training."""
_LEAST_S, _MOST_S = 0.15, 2.0


class Speed:
    """A step wrapper that measures one worker: `task.use_step_wrapper(speed)`.

    Args:
        worker: Collects and learns.
        job: What it was told.
    """

    def __init__(self, worker: SlotWorker, job: Job) -> None:
        self._worker = worker
        self._job = job
        self._timer = StepTimer(print_per_step=0)
        self._warm = False
        self._begin()

    def __call__(self, fn: Middleware) -> Middleware:
        """Take the time of a middleware. The task calls this."""
        return self._timer(fn)

    def end_loop(self, ctx: Context, seconds: float) -> None:
        """Note the time of a loop. The task calls this."""
        self._timer.end_loop(ctx, seconds)
        steps = self._timer.summary()
        self._train_s += seconds - sum(steps[name]["last"] for name in _APART if name in steps)
        self._loops += 1
        if not self._warm and not ctx.finish:  # the first loop compiles kernels and fills caches
            self._warm = True
            self._begin()

    def measured(self, hurry: bool = False) -> dict[str, Any]:
        """Calibrate, and return `rho`, `eta`, `limited_by` and `speed` of a `RunResult`.

        Args:
            hurry: Somebody waits for the end: calibrate as shortly as can be.
        """
        if not self._loops:
            return {}
        workers = self._worker.team.size
        cores = min(workers, whole_cores())
        if workers > cores and not self._worker.is_first:
            return {}  # keeping the first company would take its core away
        steps_per_s = self._worker.env_steps(self._loops) / self._train_s
        split = self._split()
        # As many as there were: a limit of the divergence may end learning early.
        updates = self._worker.agent.train_iter - self._updates
        epochs = updates / self._loops / self._job.cfg.minibatches
        speed: dict[str, Any] = {
            "steps_per_s": steps_per_s,
            "cores": cores,
            "epochs": epochs,
            "split": split.shares,
            "busy_elsewhere": self._busy_elsewhere(),
        }
        found: dict[str, Any] = {"limited_by": split.limited_by, "speed": speed}
        try:
            limits = self._limits(_LEAST_S if hurry else calibration_seconds(self._train_s))
        except Exception:
            # A run that has ended well does not fail because a bare environment did.
            return found
        speed["bare_steps_per_s"] = limits.bare_steps_per_s(cores)
        speed["bound_steps_per_s"] = limits.bound_steps_per_s(cores, epochs)
        speed.update(asdict(limits))
        found["rho"] = limits.rho(steps_per_s, cores)
        found["eta"] = limits.eta(steps_per_s, cores, epochs)
        return found

    def _begin(self) -> None:
        """Count from here."""
        self._loops = 0
        self._train_s = 0.0
        self._since = time.perf_counter()
        self._spent = self._parts()
        self._lost = waited_for_a_core()
        self._updates = self._worker.agent.train_iter

    def _parts(self) -> tuple[float, ...]:
        rollouts, group = self._worker.rollouts, self._worker.group
        if self._job.cfg.lag:  # on a thread of its own: what counts is how long it is waited for
            return self._worker.ahead_seconds, 0.0, group.learn_seconds, group.wait_seconds
        return (
            rollouts.env_seconds,
            rollouts.act_seconds,
            group.learn_seconds,
            group.wait_seconds,
        )

    def _split(self) -> Split:
        pairs = zip(self._parts(), self._spent, strict=True)
        return Split.of(self._train_s, *(now - before for now, before in pairs))

    def _busy_elsewhere(self) -> float:
        """Return the part of the time in which other programs had this worker's core."""
        return (waited_for_a_core() - self._lost) / (time.perf_counter() - self._since)

    def _limits(self, seconds: float) -> Limits:
        """Measure what a step costs here, with environments as this worker has them."""
        agent, team, plan = self._worker.agent, self._worker.team, self._worker.plan
        job = self._job
        mine = plan.share(team.index, team.size)
        width, first = len(mine) * plan.width, mine.start * plan.width
        row_bytes = nbytes(plan.fields()) // (plan.steps * plan.envs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to warn of was said in training
            calibration = Calibration(
                lambda: job.make_envs(width, first_env=first),
                count_products(agent.model, agent.obs_space),
                rows=plan.steps * plan.width // job.cfg.minibatches,
                row_bytes=row_bytes,
                block_bytes=row_bytes * plan.steps * width,
            )
            try:
                calibration.spend(seconds)
                return calibration.limits()
            finally:
                calibration.close()


def calibration_seconds(train_seconds: float) -> float:
    """Return how long to calibrate: 5 % of a short run, 2 % of a long one, at most two seconds."""
    short = min(0.05 * train_seconds, 1.0)
    return min(max(_LEAST_S, short, 0.02 * train_seconds), _MOST_S)
