"""CONTRACT, section Task: async mode, and what overlaps anywhere."""

import asyncio
import contextvars
import gc
import logging
import threading
import weakref

import pytest
from async_helpers import LONG

from muster import Task
from muster.framework import overlap


@pytest.mark.parametrize("n", [1, 3, 8])
def test_all_middleware_of_a_loop_start_together_each_on_a_thread_of_its_own(n):
    meeting = threading.Barrier(n, timeout=LONG)
    threads = []

    def make(number):
        def middleware(ctx):
            meeting.wait()  # passes only when all n are running at once
            threads.append(threading.get_ident())

        return middleware

    task = Task(async_mode=True)
    for number in range(n):
        task.use(make(number))
    task.run(3)
    assert len(set(threads)) == n and threading.get_ident() not in threads


def test_the_loop_waits_for_all_of_them_at_its_end():
    release = threading.Event()
    ended = []

    def slow(ctx):
        assert release.wait(LONG)
        ended.append(("slow", ctx.total_step))

    def fast(ctx):
        ended.append(("fast", ctx.total_step))
        release.set()

    Task(async_mode=True).use(slow).use(fast).run(1)
    assert ended == [("fast", 0), ("slow", 0)]


def test_the_way_back_is_in_strict_reverse_order_of_use_whatever_ended_first():
    back = []
    first_may_end = threading.Event()

    def first(ctx):
        assert first_may_end.wait(LONG)
        yield
        back.append("first")

    async def second(ctx):
        yield
        back.append("second")

    def third(ctx):
        first_may_end.set()
        yield
        back.append("third")

    Task(async_mode=True).use(first).use(second).use(third).run(2)
    assert back == ["third", "second", "first"] * 2


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_n_async_workers_limits_the_threads_and_so_what_runs_at_once(limit):
    lock = threading.Lock()
    running, most, threads = 0, 0, set()
    meeting = threading.Barrier(limit, timeout=LONG)

    def middleware(ctx):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            threads.add(threading.get_ident())
        meeting.wait()  # fills up only if `limit` of them do run at once
        with lock:
            running -= 1

    task = Task(async_mode=True, n_async_workers=limit)
    for _ in range(6):
        task.use(middleware)
    task.run(3)
    assert most == limit and len(threads) <= limit


def test_groups_inside_a_limited_crew_do_not_deadlock():
    done = []
    task = Task(async_mode=True, n_async_workers=1)

    def leaf(ctx):
        done.append(1)

    task.use(task.parallel(leaf, task.serial(leaf, task.parallel(leaf, leaf)), leaf)).use(leaf)
    task.run(3)
    assert len(done) == 6 * 3


def test_a_group_whose_caller_works_itself_waits_for_those_who_came_to_help():
    for _ in range(30):
        ended = []
        task = Task(async_mode=True, n_async_workers=2)

        async def slow(ctx, ended=ended):
            await asyncio.sleep(0.001)
            ended.append("member")

        def after_group(ctx, ended=ended):
            ended.append("after")

        group = task.serial(task.parallel(slow, slow, slow, slow), after_group)
        task.use(lambda ctx: None).use(group).use(lambda ctx: None).run(1)
        assert ended == ["member"] * 4 + ["after"]


def test_async_def_middleware_shares_one_event_loop():
    loops = set()
    arrived = asyncio.Event()

    async def waits(ctx):
        loops.add(asyncio.get_running_loop())
        await asyncio.wait_for(arrived.wait(), LONG)  # the other one runs meanwhile

    async def arrives(ctx):
        loops.add(asyncio.get_running_loop())
        arrived.set()

    Task(async_mode=True).use(waits).use(arrives).run(1)
    assert len(loops) == 1


def test_idle_threads_keep_no_old_ctx_alive():
    class Thing: ...

    references, alive = [], []
    task = Task(async_mode=True)

    def work(ctx):
        alive.append([reference() is not None for reference in references])
        ctx.thing = Thing()
        references.append(weakref.ref(ctx.thing))

    gc.collect()
    gc.disable()
    try:
        task.use(work).run(3)
    finally:
        gc.enable()
    assert alive == [[], [False], [False, False]]


def test_a_context_variable_of_the_caller_holds_in_every_middleware():
    name = contextvars.ContextVar("name", default="nobody")
    seen = []

    async def later(ctx):
        seen.append(name.get())

    name.set("somebody")
    Task(async_mode=True).use(lambda ctx: seen.append(name.get())).use(later).run(1)
    assert seen == ["somebody", "somebody"]


def test_many_loops_use_no_more_threads_than_middleware():
    most = 0

    def count(ctx):
        nonlocal most
        most = max(most, threading.active_count())

    before = threading.active_count()
    Task(async_mode=True).use(count).use(count).use(count).run(2000)
    assert most <= before + 3


def test_a_middleware_that_does_not_stop_is_named(monkeypatch, caplog):
    monkeypatch.setattr(overlap, "_PATIENCE_S", 0.01)
    started, release = threading.Event(), threading.Event()

    class Release(logging.Handler):
        def emit(self, record):
            release.set()

    handler = Release()
    logging.getLogger("muster").addHandler(handler)

    def stubborn(ctx):
        started.set()
        assert release.wait(LONG)

    def fails(ctx):
        started.wait(LONG)
        raise ValueError

    try:
        with pytest.raises(ValueError):
            Task(async_mode=True).use(stubborn).use(fails).run(1)
    finally:
        logging.getLogger("muster").removeHandler(handler)
    assert "waiting for 'stubborn' to stop" in caplog.text


def test_wait_for_on_the_event_loop_is_refused_with_the_line_to_use():
    task = Task()

    async def waits(ctx):
        task.wait_for("x")

    with pytest.raises(RuntimeError) as caught:
        task.use(waits).run(1)
    assert "wait_for('x') was called on the event loop" in str(caught.value)
    assert "try: await asyncio.to_thread(task.wait_for, 'x')" in str(caught.value)


def test_wait_for_in_a_thread_of_the_event_loop_does_as_the_line_says():
    got = []
    waiting = threading.Event()
    task = Task(async_mode=True)

    def wait():
        waiting.set()
        return task.wait_for("x", timeout=LONG)

    async def waits(ctx):
        got.append(await asyncio.to_thread(wait))

    def emits(ctx):
        waiting.wait(LONG)
        while not got:
            task.emit("x", 1)

    task.use(waits).use(emits).run(1)
    assert got == [((1,), {})]
