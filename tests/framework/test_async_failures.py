"""CONTRACT, section Task: what an exception does to all that overlaps with it."""

import asyncio
import threading
import time

import pytest
from async_helpers import LONG

from muster import RunCancelled, Task


def test_the_first_exception_is_raised_once_the_others_were_told_to_stop():
    """They see ctx.finish, a wait_for wakes, coroutines are cancelled, nothing is left running."""
    ended = []
    others_wait = threading.Barrier(4, timeout=LONG)
    task = Task(async_mode=True)

    def looks_at_finish(ctx):
        others_wait.wait()
        deadline = time.monotonic() + LONG
        while not ctx.finish and time.monotonic() < deadline:
            time.sleep(0.001)
        ended.append("finish" if ctx.finish else "timeout")

    def waits_for_event(ctx):
        others_wait.wait()
        try:
            task.wait_for("never", timeout=LONG)
        except RunCancelled:
            ended.append("wait_for")
            raise

    async def awaits(ctx):
        try:
            await asyncio.to_thread(others_wait.wait)
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            ended.append("coroutine")
            raise

    def fails(ctx):
        others_wait.wait()
        raise ValueError("broken")

    task.use(looks_at_finish).use(waits_for_event).use(awaits).use(fails)
    with pytest.raises(ValueError, match="broken") as caught:
        task.run(1)
    assert sorted(ended) == ["coroutine", "finish", "wait_for"]
    assert caught.value.__notes__ == ["in middleware 'fails', loop 0, node 0"]


def test_nothing_in_a_group_starts_after_another_middleware_failed():
    in_group, failed = threading.Event(), threading.Event()
    started = []
    task = Task(async_mode=True)

    def fails(ctx):
        in_group.wait(LONG)
        raise ValueError

    def first(ctx):
        in_group.set()
        while not ctx.finish:
            failed.wait(0.001)

    async def second(ctx):
        started.append("second")

    task.use(fails).use(task.serial(first, second))
    with pytest.raises(ValueError) as caught:
        task.run(1)
    assert started == []
    assert caught.value.__notes__ == ["in middleware 'fails', loop 0, node 0"]


def test_the_note_does_not_name_a_group_that_was_only_told_to_stop():
    meeting = threading.Barrier(2, timeout=LONG)
    task = Task(async_mode=True)

    def fails(ctx):
        meeting.wait()
        raise ValueError

    def waits(ctx):
        meeting.wait()
        task.wait_for("never", timeout=LONG)

    task.use(fails).use(task.parallel(waits))
    with pytest.raises(ValueError) as caught:
        task.run(1)
    assert caught.value.__notes__ == ["in middleware 'fails', loop 0, node 0"]


def test_what_waits_for_the_one_that_failed_never_starts():
    started = []

    def fails(ctx):
        raise ValueError("broken")

    task = Task(async_mode=True).use(fails)
    task.use(started.append, after=fails)
    with pytest.raises(ValueError, match="broken"):
        task.run(1)
    assert started == []


def test_a_second_exception_is_noted_on_the_first():
    meeting = threading.Barrier(2, timeout=LONG)

    def first(ctx):
        meeting.wait()
        raise ValueError("first")

    def second(ctx):
        meeting.wait()
        while not ctx.finish:
            time.sleep(0.001)
        raise OSError("second")

    with pytest.raises(ValueError, match="first") as caught:
        Task(async_mode=True).use(first).use(second).run(1)
    assert "while stopping, there was also: OSError('second')" in caught.value.__notes__


def test_an_exception_inside_nested_groups_is_the_one_that_leaves_run():
    meeting = threading.Barrier(3, timeout=LONG)
    task = Task(async_mode=True)

    def waits(ctx):
        meeting.wait()
        task.wait_for("never", timeout=LONG)

    def fails(ctx):
        meeting.wait()
        raise ValueError("deep")

    task.use(waits).use(task.serial(task.parallel(fails, waits)))
    with pytest.raises(ValueError, match="deep") as caught:
        task.run(1)
    assert caught.value.__notes__[0] == "in middleware 'fails', loop 0, node 0"


def test_open_generators_are_closed_when_one_fails_in_async_mode():
    closed = []
    is_open = threading.Event()

    def opens(ctx):
        try:
            is_open.set()
            yield
        finally:
            closed.append("plain")

    def fails(ctx):
        is_open.wait(LONG)
        raise ValueError

    task = Task(async_mode=True).use(opens)
    with pytest.raises(ValueError):
        task.use(fails, after=opens).run(1)
    assert closed == ["plain"]


def test_an_async_generator_may_await_while_it_is_closed_though_coroutines_were_cancelled():
    closed = []

    async def opens(ctx):
        try:
            yield
        finally:
            await asyncio.sleep(0)
            closed.append("async")

    def fails(ctx):
        raise ValueError

    task = Task(async_mode=True).use(opens)
    with pytest.raises(ValueError):
        task.use(fails, after=opens).run(1)
    assert closed == ["async"]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_100_runs_that_raise_leave_the_thread_count_where_it_was(kind):
    async def fails_async(ctx):
        await asyncio.sleep(0)
        raise ValueError

    def fails(ctx):
        raise ValueError

    before = threading.active_count()
    for _ in range(100):
        task = Task(async_mode=True).use(lambda ctx: None)
        task.use(fails_async if kind == "async" else fails)
        with pytest.raises(ValueError):
            task.run(3)
        assert threading.active_count() == before
