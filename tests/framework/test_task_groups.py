"""CONTRACT, section Task: wrappers, and groups made by `serial` and `parallel`."""

import threading

import pytest

from muster import Task, TaskError


def test_wrappers_wrap_what_was_used_and_what_will_be_the_first_one_innermost(trace):
    def wrapper(name):
        def wrap(fn):
            def wrapped(ctx):
                trace.append(f"{name} in")
                result = fn(ctx)
                trace.append(f"{name} out")
                return result

            return wrapped

        return wrap

    task = Task().use(trace.plain("a"))
    task.use_step_wrapper(wrapper("inner")).use_step_wrapper(wrapper("outer"))
    task.use(trace.generator("b")).run(1)
    around = ["outer in", "inner in", "a", "inner out", "outer out"]
    assert trace == [
        *around,
        "outer in",
        "inner in",
        "inner out",
        "outer out",
        "b forward",
        "b back",
    ]


def test_wrappers_wrap_the_members_of_groups_and_not_the_groups(trace):
    wrapped = []

    def wrapper(fn):
        wrapped.append(fn.__name__)
        return fn

    def a(ctx): ...

    def b(ctx): ...

    task = Task()
    task.use(task.serial(a, task.parallel(b))).use_step_wrapper(wrapper).run(2)
    assert wrapped == ["a", "b"]


def test_a_wrapper_with_end_loop_is_told_of_every_loop():
    class Clock:
        def __init__(self):
            self.loops = []

        def __call__(self, fn):
            return fn

        def end_loop(self, ctx, seconds):
            self.loops.append((ctx.total_step, ctx.finish, seconds >= 0))

    clock = Clock()
    Task().use_step_wrapper(clock).use(lambda ctx: None).run(2)
    assert clock.loops == [(0, False, True), (1, True, True)]


def test_serial_makes_one_middleware_and_nests(trace):
    task = Task()
    inner = task.serial(trace.generator("b"), trace.plain("c"))
    task.use(task.serial(trace.generator("a"), inner)).use(trace.plain("d")).run(1)
    assert trace == ["a forward", "b forward", "c", "d", "b back", "a back"]


def test_parallel_overlaps_in_serial_mode_and_comes_back_in_reverse_order(trace):
    meeting = threading.Barrier(2, timeout=10)

    def member(name):
        def middleware(ctx):
            meeting.wait()
            yield
            trace.append(name)

        return middleware

    task = Task()
    task.use(trace.plain("before")).use(task.parallel(member("a"), member("b")))
    task.use(trace.plain("after")).run(2)
    assert trace == ["before", "after", "b", "a"] * 2


def test_a_group_may_be_called_by_a_middleware_of_the_same_task(trace):
    task = Task()
    group = task.serial(trace.generator("a"), trace.plain("b"))

    def caller(ctx):
        trace.append("caller")
        yield from group(ctx)
        trace.append("caller back")

    task.use(caller).run(1)
    assert trace == ["caller", "a forward", "b", "a back", "caller back"]


def test_a_failure_of_overlapping_members_ends_the_run_though_a_middleware_catches_it():
    task = Task()

    def fails(ctx):
        raise ValueError("broken")

    group = task.parallel(fails)

    def careless(ctx):
        try:
            yield from group(ctx)
        except ValueError:
            return

    with pytest.raises(ValueError, match="broken"):
        task.use(careless).run(4)


def test_an_async_def_cannot_wait_for_the_event_loop_it_runs_on():
    task = Task()

    async def inner(ctx): ...

    group = task.serial(inner)

    async def outer(ctx):
        group(ctx)

    with pytest.raises(TaskError, match="an async def called a group that holds an async def"):
        task.use(outer).run(1)
