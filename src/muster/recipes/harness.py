"""The part of a training program besides collecting and learning, shared by all programs.

    record:    progress -> checkpoint -> metrics and sinks
    evaluate:  here, or on a separate node -> best checkpoint, target
    limit:     guard -> steps, seconds -> signals
    pace:      the gate of a `Trainer`, if there is one (recipes/gate.py)

A program makes one harness in each of its processes, and calls these methods in the order of its
loop. Only one process writes the run's files, and only that process records and evaluates.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from muster import middleware
from muster.framework import Context, Task
from muster.recipes.gate import RunGate, post_of
from muster.recipes.graceful import StopRequest
from muster.recipes.hooks import hooks_of
from muster.recipes.job import Job, result_of
from muster.recipes.keeping import counters_of, keep_best, meta_of
from muster.recipes.metric_sinks import metric_sinks
from muster.recipes.progress import Progress, opened
from muster.recipes.result import RunResult
from muster.run import MetricsWriter, RunDirectory
from muster.workers import Evaluator
from muster.workers.apart import EvaluationApart, Judged
from muster.workers.episode_log import EpisodeLog


class Agent(Protocol):
    """What a harness needs of an agent in order to save, evaluate and hash it."""

    def act(self, obs: Any) -> Any:
        """Return a greedy action for each of N observations."""

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all mutable state, including `policy`."""

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Restore the state that `parts` returned."""

    def policy_sha256(self) -> str:
        """Return a hash of the policy's weights."""


@dataclass(frozen=True, slots=True)
class _Question:
    """The agent at the time when an evaluation was requested."""

    learned: dict[str, Any]
    counters: dict[str, int]


class Harness:
    """Records, evaluates and ends a run.

    Args:
        task: The task of the program.
        job: The job of the run.
        agent: The agent that learns.
        started: When the run began, by `time.monotonic`.
        first_step: Environment steps made before `started`.
        state: Returns the content of a checkpoint besides the parts of the agent.
        stop: Tells whether a signal has asked the run to end. None on a node, whose parent
            receives the signals.
    """

    def __init__(
        self,
        task: Task,
        job: Job,
        agent: Agent,
        started: float,
        first_step: int,
        state: Callable[[Context], Mapping[str, Any]] = lambda ctx: {},
        stop: StopRequest | None = None,
    ) -> None:
        self.run = RunDirectory.join(job.run_dir)
        self.stop = stop or StopRequest.by_parent(task)
        self.episodes = EpisodeLog()
        """The episodes that have not been written yet."""
        self._task = task
        self._job = job
        self._agent = agent
        self._started = started
        self._first_step = first_step
        self._state = state
        self._best = self.run.best.score()
        self._writer: MetricsWriter | None = None
        self._evaluator: Evaluator | None = None
        self._note: Callable[[Context], object] = lambda ctx: None
        self._metrics_every = 1
        self._gate: RunGate | None = None
        self._saved: tuple[int, Path] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return this harness."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close all opened files."""
        self._stack.close()

    def record(
        self,
        resume_from: int | None,
        every: int = 1_000,
        note: Callable[[Context], object] | None = None,
    ) -> None:
        """Show progress, save checkpoints and write metrics.

        Args:
            resume_from: The step from which the metrics continue; None for a new run.
            every: Environment steps between two lines of metrics.
            note: Called in each loop after its episodes were counted.
        """
        options = self._job.options
        self._note, self._metrics_every = note or self._note, every
        sinks = metric_sinks(self.run, options)
        writer = self._stack.enter_context(
            MetricsWriter(self.run, resume_from=resume_from, sinks=sinks)
        )
        self._writer = writer
        shown_on = opened(self._job.terminal)
        self._task.use(Progress(self._job.env_steps, options.quiet, shown_on))
        self._task.use(middleware.checkpoint(self._save, options.checkpoint_every))
        log = middleware.log_metrics(writer, self.episodes, every, options.checkpoint_every, note)
        self._task.use(log)

    def evaluate(self) -> None:
        """Evaluate in this process."""
        self._use_hooks()
        options = self._job.options
        self._evaluator = Evaluator(
            self._agent,
            self._job.eval_setup,
            episodes=options.eval_episodes,
            stop_at=options.stop_at,
            seed=options.seed,
            abandon=self.stop.is_requested,
            max_steps=options.eval_max_steps,
            seconds=lambda: self._job.evaluation_seconds(self._started),
            env_kwargs={"backend": self._job.eval_backend},
        )
        on_best = self._save_best
        every = options.eval_every
        self._task.use(middleware.evaluate(self._evaluator, every, on_best, self._best))

    def evaluate_apart(self, apart: EvaluationApart) -> None:
        """Send weights to the evaluator's node, and continue training while it evaluates."""
        self._use_hooks()
        every = self._job.options.eval_every
        self._task.use(middleware.judge(apart, every, self._ask, self._judged))

    def limit(self) -> None:
        """End the run when a number is not finite, at its limits, or at a signal."""
        options = self._job.options
        self._task.use(middleware.guard(self.run.checkpoints.last))
        self._task.use(
            middleware.stop_after(
                self._job.env_steps, options.seconds, self._started, self._reserve
            )
        )
        self._task.use(self.stop.middleware())

    def train(self, end: str = "all") -> RunResult:
        """Run the task, and return its result."""
        with middleware.guarded(self._task, self.run.checkpoints.last):
            ctx = self._task.run(end=end)
        paused = 0.0 if self._gate is None else self._gate.paused
        result = result_of(self._job, ctx, self._agent, self._started, self._first_step, paused)
        return replace(result, stop_signal=self.stop.signal)

    def finish(self, result: RunResult) -> RunResult:
        """Write the result if this process writes files; in a one-process run, add the policy."""
        if not self._job.on_nodes:
            return replace(result, policy=self._agent)
        if self._writer is not None:
            self.run.write_result(result.as_json())
        return result

    def _use_hooks(self) -> None:
        """Add the user's middleware: its way back runs after evaluation and before metrics.

        The gate comes after all of them, when this loop can still be made the last.
        """
        if self._job.paced:
            # One rollout and its updates; where a loop is smaller, up to the next line of metrics.
            in_step = self._job.cfg.PROGRAM == "in_step"
            self._gate = RunGate(
                post_of(self._job, self.stop),
                1 if in_step else self._metrics_every,
                self._save_now,
                lambda: self._agent.parts()["policy"],
                self.episodes,
                self.stop,
            )
            self._task.use(self._gate.middleware())
        for hook in hooks_of(self._job.options.use):
            self._task.use(hook)

    def _save(self, ctx: Context) -> Path:
        if self._saved is not None and self._saved[0] == ctx.total_step:
            return self._saved[1]  # the driver asked for it in this loop
        learned = self._agent.parts()
        middleware.check_state(learned)
        parts = {**learned, **self._state(ctx)}
        store = self.run.checkpoints
        path = store.save(ctx.env_step, parts, counters_of(ctx), meta_of(self._job, ctx))
        store.prune()
        self._saved = ctx.total_step, path
        return path

    def _save_now(self, ctx: Context) -> Path:
        """Save before the turn of the checkpoint; as always, after the line of metrics."""
        assert self._writer is not None
        middleware.count_episodes(ctx, self.episodes)
        middleware.write_line(ctx, self._writer, self.episodes)
        self._note(ctx)
        return self._save(ctx)

    def _save_best(self, ctx: Context) -> None:
        mean = ctx.evaluation.mean
        keep_best(self.run, self._job, self._agent.parts(), counters_of(ctx), mean)

    def _reserve(self) -> float:
        return 0.0 if self._evaluator is None else self._evaluator.last_seconds

    def _ask(self, ctx: Context) -> tuple[Any, _Question, float]:
        asked = _Question(self._agent.parts(), counters_of(ctx))
        return asked.learned["policy"], asked, self._job.evaluation_seconds(self._started)

    def _judged(self, ctx: Context, answer: Judged) -> None:
        if answer.evaluation is None:
            return
        asked: _Question = answer.state
        mean = answer.evaluation.mean
        assert self._writer is not None
        # The answer is about the weights that were sent: their step and score count, not today's.
        step, train_iter = asked.counters["env_step"], asked.counters["train_iter"]
        self._writer.write(step, {"eval/return": mean}, train_iter=train_iter)
        ctx.eval_return = mean
        if self._best is None or mean > self._best:
            self._best = mean
            keep_best(self.run, self._job, asked.learned, asked.counters, mean)
        if ctx.get("stopped_by") == "target":  # an earlier answer has already ended the run
            return
        stop_at = self._job.options.stop_at
        if stop_at is not None and mean >= stop_at:
            # Keep the policy that was evaluated, not what it has become since.
            self._agent.load_parts(asked.learned)
            ctx.train_iter = train_iter
            ctx.finish, ctx.stopped_by = True, "target"
        if ctx.train_iter == train_iter:
            ctx.evaluation = answer.evaluation
