"""CONTRACT, section Task: async mode, and what overlaps anywhere."""

import asyncio
import contextvars
import copy
import gc
import logging
import threading
import time
import weakref

import pytest

from muster import MusterWarning, RunCancelled, Task
from muster.framework import overlap

LONG = 30.0
"""Seconds after which a test that waits in vain has failed."""


def names_of_threads():
    return sorted(thread.name for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = names_of_threads()
    yield
    assert names_of_threads() == before


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


def test_after_orders_two_middleware_and_a_list_orders_many():
    order = []
    lock = threading.Lock()

    def make(name):
        def middleware(ctx):
            with lock:
                order.append(name)

        middleware.__name__ = name
        return middleware

    collect, evaluate, train, save = map(make, ("collect", "evaluate", "train", "save"))
    task = Task(async_mode=True)
    task.use(collect).use(evaluate).use(train, after=collect).use(save, after=[train, evaluate])
    task.run(50)
    for loop in range(50):
        names = order[4 * loop : 4 * loop + 4]
        assert names.index("collect") < names.index("train") < names.index("save")
        assert names.index("evaluate") < names.index("save")


def test_after_a_middleware_that_is_used_twice_waits_for_those_used_before():
    order = []

    def a(ctx):
        order.append("a")

    def b(ctx):
        order.append("b")

    task = Task(async_mode=True).use(a).use(a, after=a).use(b, after=a).use(a, after=b)
    task.run(20)
    assert order == ["a", "a", "b", "a"] * 20


def test_after_takes_a_method():
    order = []

    class Worker:
        def first(self, ctx):
            order.append("first")

    worker = Worker()
    task = Task(async_mode=True).use(worker.first)
    task.use(lambda ctx: order.append("second"), after=worker.first).run(20)
    assert order == ["first", "second"] * 20


def test_an_order_holds_through_a_middleware_that_does_not_run_here():
    order = []

    def a(ctx):
        order.append("a")

    def elsewhere(ctx): ...

    task = Task(async_mode=True).use(a).use(elsewhere, after=a, filter_labels=["gpu"])
    task.use(lambda ctx: order.append("c"), after=elsewhere).run(50)
    assert order == ["a", "c"] * 50


def test_after_waits_for_a_coroutine_and_for_a_group():
    order = []
    task = Task(async_mode=True)

    async def first(ctx):
        await asyncio.sleep(0)
        order.append("first")

    def second(ctx):
        order.append("second")

    def third(ctx):
        order.append("third")

    group = task.parallel(second)
    task.use(first).use(group, after=first).use(third, after=group).run(20)
    assert order == ["first", "second", "third"] * 20


def test_after_a_middleware_that_does_not_run_here_waits_for_nothing():
    done = []

    def elsewhere(ctx):
        raise AssertionError("it has no label for this node")

    task = Task(async_mode=True).use(elsewhere, filter_labels=["role.actor"])
    task.use(lambda ctx: done.append(1), after=elsewhere).run(1)
    assert done == [1]


def test_in_serial_mode_after_states_what_already_holds():
    order = []

    def a(ctx):
        order.append("a")

    Task().use(a).use(lambda ctx: order.append("b"), after=a).run(1)
    assert order == ["a", "b"]


def write_both(**options):
    def collect(ctx):
        ctx.envstep = 1

    def train(ctx):
        ctx.update(envstep=2)

    task = Task(async_mode=True).use(collect)
    return task.use(train, after=collect) if options.get("ordered") else task.use(train)


def test_two_unordered_writers_of_one_key_are_named_in_one_warning():
    with pytest.warns(MusterWarning) as caught:
        write_both().run(5)
    assert [str(each.message) for each in caught] == [
        "'collect' and 'train' both write ctx.envstep and run at the same time: which value stays "
        "is luck; order them: task.use(train, after=collect), or task.serial(collect, train)"
    ]


def test_ordered_writers_of_one_key_raise_no_warning():
    write_both(ordered=True).run(5)


def test_writers_that_are_ordered_through_a_third_raise_no_warning():
    def a(ctx):
        ctx.x = 1

    def b(ctx): ...

    def c(ctx):
        ctx.x = 2

    Task(async_mode=True).use(a).use(b, after=a).use(c, after=b).run(3)


def test_taking_finish_back_is_a_conflict_with_setting_it():
    is_set = threading.Event()

    def yes(ctx):
        ctx.finish = True
        is_set.set()

    def no(ctx):
        is_set.wait(LONG)
        ctx.finish = False

    with pytest.warns(MusterWarning, match="'yes' and 'no' both write ctx.finish"):
        Task(async_mode=True).use(yes).use(no).run(2)


def test_copies_of_ctx_are_no_conflict():
    def snapshot(ctx):
        copy.deepcopy(ctx)

    Task(async_mode=True).use(snapshot).use(snapshot).run(2)


def test_setdefault_and_finish_and_the_way_back_are_no_conflict():
    def a(ctx):
        ctx.setdefault("x", 0)
        ctx.finish = True
        yield
        ctx.y = 1

    def b(ctx):
        ctx.setdefault("x", 0)
        ctx.finish = True
        yield
        ctx.y = 2

    assert Task(async_mode=True).use(a).use(b).run(3).y == 1


def test_a_coroutine_that_writes_is_named_too():
    async def fetch(ctx):
        await asyncio.sleep(0)
        ctx.data = 1

    def train(ctx):
        ctx |= {"data": 2}

    with pytest.warns(MusterWarning, match="'fetch' and 'train' both write ctx.data"):
        Task(async_mode=True).use(fetch).use(train).run(1)


def test_members_of_parallel_that_write_one_key_are_named_in_serial_mode():
    def a(ctx):
        ctx.x = 1

    def b(ctx):
        ctx["x"] = 2

    task = Task()
    task.use(task.parallel(a, task.serial(b)))
    with pytest.warns(MusterWarning, match=r"'a' and 'serial\(b\)' both write ctx.x"):
        task.run(2)


def test_writes_inside_a_group_count_against_what_runs_beside_the_group():
    def a(ctx):
        ctx.x = 1

    def b(ctx):
        ctx.x = 2

    task = Task(async_mode=True)
    task.use(task.parallel(a)).use(b)
    with pytest.warns(MusterWarning, match=r"'parallel\(a\)' and 'b' both write ctx.x"):
        task.run(1)


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
