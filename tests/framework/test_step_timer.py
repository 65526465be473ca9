"""CONTRACT, section Task: StepTimer. The clock is a fake one, so that its numbers are exact."""

import asyncio
import io
import threading

import pytest

from muster import OptionError, StepTimer, Task
from muster.framework import task as task_module
from muster.framework import wrapper as wrapper_module


class Clock:
    """Time that passes only when a middleware says so."""

    def __init__(self):
        self.now = 100.0
        self._lock = threading.Lock()

    def perf_counter(self):
        return self.now

    def work(self, seconds):
        with self._lock:
            self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(wrapper_module, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(task_module.time, "perf_counter", clock.perf_counter)
    return clock


def test_summary_has_last_mean_and_share_in_seconds(clock):
    def fast(ctx):
        clock.work(1)

    def slow(ctx):
        clock.work(2 if ctx.total_step == 0 else 4)

    timer = StepTimer(print_per_step=0)
    Task().use_step_wrapper(timer).use(fast).use(slow).run(2)
    assert timer.summary() == {
        "fast": {"last": 1.0, "mean": 1.0, "share": 2 / 8},
        "slow": {"last": 4.0, "mean": 3.0, "share": 6 / 8},
    }
    assert timer.loop_seconds == {"last": 5.0, "mean": 4.0} and timer.overlap == 1.0


def test_forward_and_back_are_added_and_what_happens_in_between_is_not(clock):
    def outer(ctx):
        clock.work(1)
        yield
        clock.work(2)

    async def outer_async(ctx):
        clock.work(4)
        yield
        clock.work(8)

    def inner(ctx):
        clock.work(100)

    timer = StepTimer(print_per_step=0)
    Task().use_step_wrapper(timer).use(outer).use(outer_async).use(inner).run(1)
    assert {name: times["last"] for name, times in timer.summary().items()} == {
        "outer": 3.0,
        "outer_async": 12.0,
        "inner": 100.0,
    }


def test_an_early_return_and_a_coroutine_are_timed(clock):
    def early(ctx):
        clock.work(1)
        return
        yield

    async def coroutine(ctx):
        clock.work(1)
        await asyncio.sleep(0)
        clock.work(1)

    timer = StepTimer(print_per_step=0)
    Task().use_step_wrapper(timer).use(early).use(coroutine).run(1)
    assert [times["last"] for times in timer.summary().values()] == [1.0, 2.0]


def test_overlap_is_shown_and_not_counted_twice_as_loop_time(clock):
    entered, worked = threading.Barrier(2, timeout=300), threading.Barrier(2, timeout=30)

    def make(name, seconds):
        def middleware(ctx):
            entered.wait()  # both are running, by the same clock
            clock.work(seconds)
            worked.wait()  # neither ends before both have worked

        middleware.__name__ = name
        return middleware

    timer = StepTimer(print_per_step=0)
    task = Task(async_mode=True).use_step_wrapper(timer)
    task.use(make("a", 1)).use(make("b", 2)).run(2)
    summary = timer.summary()
    assert timer.loop_seconds["mean"] == 3.0
    assert summary["a"]["share"] == summary["b"]["share"] == 1.0
    assert timer.overlap == 2.0


def test_members_of_groups_are_timed_and_groups_are_not(clock):
    def a(ctx):
        clock.work(1)

    def b(ctx):
        clock.work(3)

    timer = StepTimer(print_per_step=0)
    task = Task().use_step_wrapper(timer)
    task.use(task.serial(a, task.parallel(b))).run(1)
    assert {name: times["share"] for name, times in timer.summary().items()} == {
        "a": 0.25,
        "b": 0.75,
    }


def test_a_loop_that_fails_or_still_runs_does_not_count(clock):
    inside = []

    def work(ctx):
        clock.work(1)
        inside.append(timer.summary().get("work"))
        if ctx.total_step == 2:
            raise ValueError

    timer = StepTimer(print_per_step=0)
    with pytest.raises(ValueError):
        Task().use_step_wrapper(timer).use(work).run(5)
    whole = {"last": 1.0, "mean": 1.0, "share": 1.0}
    assert inside == [{"last": 0.0, "mean": 0.0, "share": 0.0}, whole, whole]
    assert timer.summary() == {"work": whole}


def test_middleware_of_the_same_name_have_rows_of_their_own(clock):
    def make():
        def train(ctx): ...

        return train

    timer = StepTimer(print_per_step=0)
    Task().use_step_wrapper(timer).use(make()).use(make()).run(1)
    assert list(timer.summary()) == ["train", "train#2"]


def test_the_name_is_that_of_the_middleware_through_other_wrappers(clock):
    def quiet(fn):
        def wrapped(ctx):
            return fn(ctx)

        return wrapped

    def train(ctx): ...

    timer = StepTimer(print_per_step=0)
    Task().use_step_wrapper(quiet).use_step_wrapper(timer).use(train).run(1)
    assert list(timer.summary()) == ["train"]


def test_a_timed_middleware_still_yields_once_closes_and_raises(clock):
    closed, references = [], []

    def twice(ctx):
        yield
        yield

    def resource(ctx):
        held = generator()
        references.append(held)  # or it would be closed for want of references
        return held

    def generator():
        try:
            yield
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="'twice' yielded twice"):
        Task().use_step_wrapper(StepTimer(0)).use(resource).use(twice).run(1)
    assert closed == [True]


def test_summary_before_the_first_loop_is_empty():
    assert StepTimer().summary() == {}


def test_the_table_is_printed_every_so_many_loops_and_after_the_last():
    out = io.StringIO()

    def train(ctx): ...

    Task().use_step_wrapper(StepTimer(print_per_step=2, file=out)).use(train).run(5)
    titles = [line.strip() for line in out.getvalue().splitlines() if "StepTimer" in line]
    assert titles == [f"StepTimer after {loops} loops" for loops in (2, 4, 5)]
    assert "train" in out.getvalue() and "whole loop" in out.getvalue()


def test_the_table_shows_seconds_in_the_right_unit(clock):
    out = io.StringIO()
    for seconds in (2.0, 0.003, 0.00000405):

        def work(ctx, seconds=seconds):
            clock.now = seconds

        clock.now = 0.0
        Task().use_step_wrapper(StepTimer(1, file=out)).use(work).run(1)
    assert "2.00 s" in out.getvalue()
    assert "3.00 ms" in out.getvalue()
    assert "4.0 us" in out.getvalue() or "4.1 us" in out.getvalue()


@pytest.mark.parametrize("value", [-1, 1.5, "5"])
def test_print_per_step_has_to_be_a_number_of_loops(value):
    with pytest.raises(OptionError) as caught:
        StepTimer(print_per_step=value)
    assert f"print_per_step={value!r} is not possible" in str(caught.value)
    assert "try: StepTimer(print_per_step=100)" in str(caught.value)
