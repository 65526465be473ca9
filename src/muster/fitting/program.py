"""The program of `muster fit`: the same code for one process and for each of N equal replicas.

    learn (one update) -> (way back) evaluate -> log -> checkpoint -> progress

The first replica decides whether an update is the last, before the barrier inside the update. It
also writes the files. You can copy and change this program.
"""

import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from muster import middleware
from muster.fitting.batches import BatchPlan
from muster.fitting.group import ReplicaGroup
from muster.fitting.job import AnyData, FitJob, make_augmentation, make_network, make_plan
from muster.fitting.network import CORRECT, LOSS, SAMPLES, FittedNetwork
from muster.fitting.progress import FitProgress
from muster.fitting.result import FitResult, best_of, with_network
from muster.fitting.schedule import learning_rate
from muster.framework import Context, Middleware, Parallel, Task
from muster.framework.node import replacements
from muster.nets.threads import one_torch_thread
from muster.recipes.graceful import StopRequest
from muster.recipes.in_step import MAX_RESTARTS
from muster.recipes.progress import opened
from muster.run import MetricsWriter, RunDirectory


def fit_replicas(job: FitJob, run: RunDirectory, stop: StopRequest) -> FitResult:
    """Train until a limit is reached: in this process, or in several others."""
    if job.replicas == 0:
        return main(job, stop)
    runner = Parallel.runner(
        job.replicas,
        on_failure="restart",
        max_restarts=MAX_RESTARTS,
        threads=1,  # the last bit of a product may depend on the number of threads
        log_dir=run.logs,
        quiet=job.options.quiet,
    )
    result: FitResult = runner(main, job)[0]
    return result


def main(job: FitJob, stop: StopRequest | None = None) -> FitResult:
    """Run one of the replicas, or the only one.

    Args:
        job: The job.
        stop: Set when a signal requests a stop. None on a node, whose parent handles signals.
    """
    started = time.monotonic()
    job.arrive()
    dataset = job.load_data()
    options = job.options
    network = make_network(job.model, dataset, options)
    plan = make_plan(dataset, options)

    def begin() -> Any:
        saved = job.checkpoint()
        if saved is None:
            return None
        network.load_parts({name: saved.parts[name] for name in network.parts()})
        return saved.parts["epoch"]["sums"]

    augmentation = make_augmentation(dataset, options)
    group = ReplicaGroup(network, dataset, plan, augmentation, learning_rate(options), begin)
    if group.is_first and not group.taken_over:
        group.began[:] = started, network.train_iter
    with one_torch_thread(), Task() as task, ExitStack() as stack:
        fitting = Fitting(task, job, dataset, plan, network, group, stop)
        first = group.first_update
        task.ctx.share("env_step")  # replicas exchange everything else through shared memory
        task.ctx.keep("env_step", "train_iter")
        task.ctx.train_iter = first
        task.ctx.env_step = plan.samples_before(first)
        if group.is_first:
            goes_on = options.resume or group.taken_over
            since = plan.samples_before(first) if goes_on else None
            writer = stack.enter_context(MetricsWriter(fitting.run, resume_from=since))
            total = options.epochs * plan.samples
            shown = FitProgress(
                total, options.epochs, options.quiet, opened(job.terminal), network.has_accuracy
            )
            task.use(shown)
            task.use(fitting.checkpoint())
            task.use(fitting.log(writer))
        task.use(fitting.evaluate())
        task.use(fitting.learn())
        with middleware.guarded(task, fitting.run.checkpoints.last):
            ctx = task.run(end="agreed")
    result = fitting.result(ctx)
    if job.replicas == 0:
        return with_network(result, network)
    if group.is_first:
        fitting.run.write_result(result.as_json())
    return result


class Fitting:
    """The middleware of a run, and its result.

    Args:
        task: The task of the program.
        job: The job.
        dataset: The data.
        plan: The batches and slots.
        network: The network that learns.
        group: The group of replicas.
        stop: Set when a signal requests a stop.
    """

    def __init__(
        self,
        task: Task,
        job: FitJob,
        dataset: AnyData,
        plan: BatchPlan,
        network: FittedNetwork,
        group: ReplicaGroup,
        stop: StopRequest | None,
    ) -> None:
        self.run = RunDirectory.join(job.run_dir)
        self.stop = stop or StopRequest.by_parent(task)
        self._job = job
        self._dataset = dataset
        self._plan = plan
        self._network = network
        self._group = group
        self._updates = job.options.epochs * plan.batches
        self._best = self.run.best.score() if group.is_first else None

    def learn(self) -> Middleware:
        """Return middleware that does one update; sets `ctx.train_iter` and `ctx.env_step`."""

        def _learn(ctx: Context) -> None:
            told = self._group.update(ctx.train_iter, self._is_over())
            ctx.train_iter += 1
            ctx.env_step = self._plan.samples_before(ctx.train_iter)
            ctx.train_loss = self._mean(LOSS)
            if ctx.train_iter >= self._updates:
                ctx.finish, ctx.stopped_by = True, "epochs"
            elif told:
                ctx.finish = True
                ctx.stopped_by = "signal" if self.stop.is_requested() else "time"

        return _learn

    def evaluate(self) -> Middleware:
        """Return middleware that evaluates after epochs and keeps the best weights."""
        options = self._job.options

        def _evaluate(ctx: Context) -> Generator[None, None, None]:
            yield
            due = ctx.train_iter >= self._updates or self._is_due(ctx, options.eval_every)
            if not due:
                return
            found = self._group.evaluate(ctx.train_iter - 1)
            ctx.evaluation = found
            score = self._network.score(found)
            ctx.test_score = score if self._network.has_accuracy else -score
            if options.stop_at is not None and score >= options.stop_at:
                ctx.finish, ctx.stopped_by = True, "target"
            if self._group.is_first and (self._best is None or score > self._best):
                self._best = score
                learned = {"policy": self._network.parts()["policy"]}
                meta = self._job.meta(self._dataset, self._network)
                self.run.best.save(ctx.env_step, learned, _counters(ctx), meta, score)

        return _evaluate

    def log(self, writer: MetricsWriter) -> Middleware:
        """Return middleware that writes a line of metrics after each epoch."""

        def _log(ctx: Context) -> Generator[None, None, None]:
            yield
            if not self._is_due(ctx, 1):
                return
            metrics = {
                "epoch": ctx.train_iter // self._plan.batches,
                "train/loss": self._mean(LOSS),
                "train/grad_norm": float(self._group.sums[-1] / self._plan.batches),
                "train/lr": self._group.rate(ctx.train_iter - 1),
            }
            if self._network.has_accuracy:
                metrics["train/accuracy"] = self._mean(CORRECT)
            if "evaluation" in ctx:
                metrics["eval/loss"] = float(ctx.evaluation[LOSS] / ctx.evaluation[SAMPLES])
                if self._network.has_accuracy:
                    metrics["eval/accuracy"] = ctx.test_score
            if (replaced := replacements()) is not None:
                metrics["nodes/replaced"] = replaced
            writer.write(ctx.env_step, metrics, train_iter=ctx.train_iter)

        return _log

    def checkpoint(self) -> Middleware:
        """Return middleware that saves after epochs, and at the end."""

        def _checkpoint(ctx: Context) -> Generator[None, None, None]:
            yield
            if not (ctx.finish or self._is_due(ctx, self._job.options.checkpoint_every)):
                return
            parts = {**self._network.parts(), "epoch": {"sums": self._group.sums.copy()}}
            middleware.check_state(parts)
            store = self.run.checkpoints
            meta = self._job.meta(self._dataset, self._network)
            store.save(ctx.env_step, parts, _counters(ctx), meta)
            store.prune()

        return _checkpoint

    def result(self, ctx: Context) -> FitResult:
        """Return the result of the run."""
        job, group, plan = self._job, self._group, self._plan
        began, first = float(group.began[0]), int(group.began[1])
        seconds = time.monotonic() - began
        found = ctx.get("evaluation")
        return FitResult(
            model=job.model,
            data=self._dataset.name,
            seed=job.options.seed,
            replicas=max(1, job.replicas),
            epochs=ctx.train_iter / plan.batches,
            samples=ctx.env_step,
            train_iter=ctx.train_iter,
            seconds=seconds,
            samples_per_s=(ctx.env_step - plan.samples_before(first)) / seconds,
            train_loss=self._mean(LOSS),
            test_accuracy=None
            if found is None or not self._network.has_accuracy
            else self._network.score(found),
            test_loss=None if found is None else float(found[LOSS] / found[SAMPLES]),
            test_samples=0 if found is None else int(found[SAMPLES]),
            **best_of(self._best, self._network),
            parameters=self._network.weights.vector.size,
            model_sha256=self._network.model_sha256(),
            data_sha256=job.data_sha256,
            stopped_by=ctx.stopped_by,
            run_dir=self.run.path,
            stop_signal=self.stop.signal,
            replacements=replacements() or 0,
        )

    def _is_over(self) -> bool:
        seconds = self._job.options.seconds
        late = seconds is not None and time.monotonic() - self._group.began[0] >= seconds
        return self.stop.is_requested() or late

    def _is_due(self, ctx: Context, every: int) -> bool:
        """Whether an epoch has ended whose number is a multiple of `every`; never for 0."""
        epochs, rest = divmod(ctx.train_iter, self._plan.batches)
        return every > 0 and rest == 0 and epochs % every == 0

    def _mean(self, which: int) -> float:
        sums = self._group.sums
        return float(sums[which] / max(1.0, sums[SAMPLES]))


def _counters(ctx: Context) -> dict[str, int]:
    return {"env_step": int(ctx.env_step), "train_iter": int(ctx.train_iter)}
