"""The verbs of a training program, one by one, with what they read from and write to ctx."""

import math
from types import SimpleNamespace

import pytest

from muster import Task
from muster.middleware import checkpoint, evaluate, guard, log_metrics, stop_after
from muster.middleware.guard import GuardError
from muster.workers import Evaluator
from muster.workers.episode_log import EpisodeLog


def counting(ctx):
    """Ten environment steps and one update in each loop."""
    ctx.keep("env_step", "train_iter")
    ctx.env_step = ctx.get("env_step", 0) + 10
    ctx.train_iter = ctx.get("train_iter", 0) + 1
    ctx.metrics = {"train/loss": 1.0 / ctx.train_iter}


class FakeEvaluator:
    """Returns what it was told to, one after the other."""

    def __init__(self, means, stop_at=math.inf):
        self.means = iter(means)
        self.stop_at = stop_at
        self.evaluated = []
        self.last = None

    def eval(self, save, train_iter, env_step):
        self.evaluated.append(env_step)
        self.last = SimpleNamespace(mean=next(self.means))
        return self.last.mean >= self.stop_at, self.last.mean


def test_stop_after_ends_a_run_by_steps_and_says_so():
    ctx = Task().use(counting).use(stop_after(env_steps=35)).run(100)
    assert ctx.env_step == 40 and ctx.stopped_by == "steps"


def test_stop_after_ends_a_run_by_time_and_says_so(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("muster.middleware.stop.time.monotonic", lambda: now[0])

    def pass_time(ctx):
        now[0] += 1.0

    ctx = Task().use(counting).use(pass_time).use(stop_after(seconds=3.0)).run(100)
    assert ctx.total_step == 2 and ctx.stopped_by == "time"


@pytest.mark.parametrize(
    ("every", "expected"), [(20, [20, 40, 60, 70]), (0, [70]), (25, [30, 50, 70])]
)
def test_evaluate_is_done_every_so_many_steps_and_at_the_end(every, expected):
    evaluator = FakeEvaluator([1.0] * 10)
    Task().use(evaluate(evaluator, every)).use(counting).run(7)
    assert evaluator.evaluated == expected


def test_evaluate_ends_the_run_when_it_is_good_enough():
    evaluator = FakeEvaluator([1.0, 5.0, 9.0], stop_at=5.0)
    ctx = Task().use(evaluate(evaluator, 10)).use(counting).run(100)
    assert ctx.env_step == 20 and ctx.evaluation.mean == 5.0
    assert ctx.metrics["eval/return"] == 5.0


def test_the_best_evaluation_so_far_is_told_of_also_where_returns_are_negative():
    best = []
    evaluator = FakeEvaluator([-200.0, -300.0, -100.0])
    task = Task().use(evaluate(evaluator, 10, lambda ctx: best.append(ctx.env_step)))
    task.use(counting).run(3)
    assert best == [10, 30]


def test_a_resumed_run_remembers_how_good_the_best_was():
    best = []
    evaluator = FakeEvaluator([5.0, 9.0])
    task = Task().use(evaluate(evaluator, 10, lambda ctx: best.append(ctx.env_step), best=7.0))
    task.use(counting).run(2)
    assert best == [20]


def test_a_run_that_a_signal_ends_is_not_evaluated():
    evaluator = FakeEvaluator([1.0])

    def interrupted(ctx):
        ctx.finish, ctx.stopped_by = True, "signal"

    Task().use(evaluate(evaluator, 0)).use(counting).use(interrupted).run(5)
    assert evaluator.evaluated == []


def test_an_evaluation_that_is_abandoned_ends_the_run_without_a_result():
    saved = []
    evaluator = Evaluator(SimpleNamespace(act=None), "CartPole-v1", abandon=lambda: True)
    task = Task().use(checkpoint(lambda ctx: saved.append(ctx.env_step), 0))
    ctx = task.use(evaluate(evaluator, 20, lambda ctx: saved.append("best"))).use(counting).run(9)
    assert ctx.env_step == 20 and ctx.stopped_by == "signal" and "evaluation" not in ctx
    assert saved == [20]


@pytest.mark.parametrize(("every", "expected"), [(20, [20, 40, 50]), (0, [50])])
def test_a_checkpoint_is_saved_every_so_many_steps_and_always_at_the_end(every, expected):
    saved = []
    task = Task().use(checkpoint(lambda ctx: saved.append(ctx.env_step), every)).use(counting)
    task.run(5)
    assert saved == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_guard_stops_at_the_first_number_that_is_none_and_names_the_last_checkpoint(value):
    def diverge(ctx):
        if ctx.train_iter == 3:
            ctx.metrics["train/loss"] = value

    saved = []
    task = Task().use(checkpoint(lambda ctx: saved.append(ctx.env_step), 10))
    task.use(counting).use(diverge).use(guard(lambda: "runs/x/checkpoints/step-20"))
    with pytest.raises(GuardError) as caught:
        task.run(10)
    message = str(caught.value)
    assert message.startswith(f"train/loss is {value} at train_iter 3, env_step 30")
    assert "try: --from-checkpoint runs/x/checkpoints/step-20, with a smaller --lr" in message
    assert saved == [10, 20], "the loop that failed is not saved"


def test_log_metrics_writes_now_and_then_and_evaluations_always():
    lines = []
    writer = SimpleNamespace(
        write=lambda step, values, train_iter: lines.append((step, train_iter, sorted(values)))
    )
    task = Task().use(log_metrics(writer, EpisodeLog(), every=30))
    task.use(evaluate(FakeEvaluator([1.0] * 10), 50)).use(counting).run(6)
    assert lines == [
        (10, 1, ["train/loss"]),
        (30, 3, ["train/loss"]),
        (50, 5, ["eval/return", "train/loss"]),
        (60, 6, ["eval/return", "train/loss"]),
    ]
