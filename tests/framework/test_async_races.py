"""CONTRACT, section Task: two that write one key with no order between them are named."""

import asyncio
import copy
import threading

import pytest
from async_helpers import LONG

from muster import MusterWarning, Task


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
        "'collect' and 'train' both write ctx.envstep and run at the same time: which value "
        "remains is undefined; order them: task.use(train, after=collect), or "
        "task.serial(collect, train)"
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
