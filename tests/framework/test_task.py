"""CONTRACT, section Task: the loop, one process, one thread."""

import asyncio
import functools
import sys
import threading

import pytest

from muster import Context, Task, TaskError


class Trace(list):
    """What happened, in order."""

    def plain(self, name):
        def middleware(ctx):
            self.append(name)

        return middleware

    def generator(self, name):
        def middleware(ctx):
            self.append(f"{name} forward")
            try:
                yield
            except GeneratorExit:
                self.append(f"{name} closed")
                raise
            self.append(f"{name} back")

        return middleware


@pytest.fixture
def trace():
    return Trace()


def test_forward_in_order_of_use_and_back_in_reverse(trace):
    task = Task().use(trace.generator("a")).use(trace.plain("b")).use(trace.generator("c"))
    task.run(1)
    assert trace == ["a forward", "b", "c forward", "c back", "a back"]


def test_use_returns_the_task():
    task = Task()
    assert task.use(print) is task


def test_every_kind_of_callable_is_a_middleware(trace):
    class Callable:
        def __call__(self, ctx):
            trace.append("object")

    class GeneratorCallable:
        def __call__(self, ctx):
            trace.append("generator object")
            yield
            trace.append("generator object back")

    class Owner:
        def method(self, ctx):
            trace.append("method")

    async def coroutine(ctx):
        await asyncio.sleep(0)
        trace.append("coroutine")

    async def async_generator(ctx):
        trace.append("async generator")
        yield
        trace.append("async generator back")

    def with_name(ctx, name="default"):
        trace.append(name)

    def returns_coroutine(ctx):
        return coroutine(ctx)

    task = Task()
    for fn in (
        Callable(),
        GeneratorCallable(),
        Owner().method,
        coroutine,
        async_generator,
        with_name,
        functools.partial(with_name, name="partial"),
        returns_coroutine,
        lambda ctx: "a plain result is ignored",
    ):
        task.use(fn)
    task.run(1)
    assert trace == [
        "object",
        "generator object",
        "method",
        "coroutine",
        "async generator",
        "default",
        "partial",
        "coroutine",
        "async generator back",
        "generator object back",
    ]


def test_a_generator_may_return_before_its_yield(trace):
    def sometimes(ctx):
        trace.append(f"forward {ctx.total_step}")
        if ctx.total_step == 0:
            return
        yield
        trace.append(f"back {ctx.total_step}")

    Task().use(sometimes).run(2)
    assert trace == ["forward 0", "forward 1", "back 1"]


def test_an_async_generator_may_return_before_its_yield(trace):
    async def sometimes(ctx):
        trace.append("forward")
        if ctx.total_step == 0:
            return
        yield
        trace.append("back")

    Task().use(sometimes).run(2)
    assert trace == ["forward", "forward", "back"]


def second_yield(ctx):
    yield
    yield


async def async_second_yield(ctx):
    yield
    yield


@pytest.mark.parametrize("fn", [second_yield, async_second_yield])
def test_a_second_yield_is_an_error_that_names_the_middleware(fn, trace):
    with pytest.raises(TaskError) as caught:
        Task().use(trace.generator("first")).use(fn).run(3)
    assert str(caught.value).startswith(f"{fn.__name__!r} yielded twice in one loop")
    assert trace == ["first forward", "first closed"]


def test_finish_lets_the_loop_run_to_its_end_both_ways_and_makes_it_the_last(trace):
    def stop(ctx):
        ctx.finish = ctx.total_step == 1

    task = Task().use(trace.generator("a")).use(stop).use(trace.plain("b"))
    last = task.run(10)
    assert trace == ["a forward", "b", "a back"] * 2
    assert last.finish is True and last.total_step == 1


def test_in_the_last_loop_of_max_step_finish_is_true_on_the_way_back_and_at_exit():
    """The trap: a checkpoint that is saved `if ctx.finish` was missed when max_step ended it."""
    forward, back, at_exit = [], [], []

    def checkpoint(ctx):
        forward.append(ctx.finish)
        yield
        back.append(ctx.finish)

    task = Task().use(checkpoint)
    task.on("exit", lambda: at_exit.append(task.ctx.finish))
    assert task.run(3).finish is True
    assert forward == [False, False, False]
    assert back == [False, False, True]
    assert at_exit == [True]


def test_nothing_can_make_a_run_longer_than_max_step():
    def never_enough(ctx):
        yield
        ctx.finish = False

    assert Task().use(never_enough).run(2).total_step == 1


def test_run_returns_the_last_context():
    contexts = []
    assert Task().use(contexts.append).run(2) is contexts[-1]


def test_run_0_does_nothing_and_finishes_nothing(trace):
    task = Task().use(trace.plain("a"))
    task.on("exit", lambda: trace.append("exit"))
    assert task.run(0) == {"total_step": 0, "finish": False}
    assert trace == []
    task.run(1)
    assert trace == ["a", "exit"]


def test_without_max_step_the_loop_goes_on_until_finish():
    def stop(ctx):
        ctx.finish = ctx.total_step == 500

    assert Task().use(stop).run().total_step == 500


def test_exit_listeners_are_called_once_without_arguments(trace):
    task = Task().use(trace.generator("a"))
    task.on("exit", lambda *args, **kwargs: trace.append(("exit", args, kwargs)))
    with task:
        task.run(1)
    assert trace == ["a forward", "a back", ("exit", (), {})]


def test_exit_listeners_are_called_before_an_exception_leaves_run(trace):
    def fail(ctx):
        raise ValueError("broken")

    task = Task().use(trace.generator("a")).use(fail)
    task.on("exit", lambda: trace.append("exit"))
    with pytest.raises(ValueError, match="broken"):
        task.run(5)
    assert trace == ["a forward", "a closed", "exit"]


def test_an_exit_listener_that_raises_is_reported_and_hides_nothing(caplog):
    def fail():
        raise OSError("disk full")

    called = []
    task = Task().use(lambda ctx: 1 / 0)
    task.on("exit", fail).on("exit", lambda: called.append(True))
    with pytest.raises(ZeroDivisionError):
        task.run(1)
    assert called == [True]
    assert "listener 'fail' of event 'exit' failed" in caplog.text and "disk full" in caplog.text


@pytest.mark.parametrize("way", ["forward", "back"])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_exception_has_a_note_that_names_middleware_loop_and_node(way, kind):
    def train(ctx):
        if ctx.total_step == 2 and way == "forward":
            raise ValueError("broken")
        yield
        if ctx.total_step == 2:
            raise ValueError("broken")

    async def train_async(ctx):
        if ctx.total_step == 2 and way == "forward":
            raise ValueError("broken")
        yield
        if ctx.total_step == 2:
            raise ValueError("broken")

    fn = train if kind == "plain" else train_async
    with pytest.raises(ValueError, match="broken") as caught:
        Task().use(lambda ctx: None).use(fn).run(5)
    assert caught.value.__notes__ == [f"in middleware {fn.__name__!r}, loop 2, node 0"]


def test_open_generators_are_closed_in_reverse_order_so_finally_runs(trace):
    def fail(ctx):
        raise ValueError

    task = Task().use(trace.generator("a")).use(trace.generator("b")).use(fail)
    with pytest.raises(ValueError):
        task.use(trace.generator("never")).run(1)
    assert trace == ["a forward", "b forward", "b closed", "a closed"]


def test_an_async_generator_that_is_closed_may_still_await(trace):
    async def resource(ctx):
        try:
            yield
        finally:
            await asyncio.sleep(0)
            trace.append("released")

    with pytest.raises(ZeroDivisionError):
        Task().use(resource).use(lambda ctx: 1 / 0).run(1)
    assert trace == ["released"]


def test_an_exception_while_closing_is_noted_and_does_not_replace_the_first(trace):
    def stubborn(ctx):
        try:
            yield
        finally:
            raise OSError("cannot close")

    with pytest.raises(ZeroDivisionError) as caught:
        Task().use(trace.generator("a")).use(stubborn).use(lambda ctx: 1 / 0).run(1)
    assert "closing 'stubborn' failed too: OSError('cannot close')" in caught.value.__notes__
    assert trace == ["a forward", "a closed"]


@pytest.mark.parametrize("kind", ["alone", "serial", "parallel"])
def test_stop_iteration_of_an_exhausted_iterator_leaves_run_as_it_is(kind):
    batches = iter([1])
    task = Task()

    def take(ctx):
        next(batches)

    task.use(take if kind == "alone" else getattr(task, kind)(take))
    with pytest.raises(StopIteration):
        task.run(2)


def test_an_exception_while_closing_a_group_is_noted(trace):
    def stubborn(ctx):
        try:
            yield
        finally:
            raise OSError("cannot close")

    task = Task()
    task.use(task.serial(trace.generator("a"), stubborn)).use(lambda ctx: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        task.run(1)
    assert "closing 'serial(middleware, stubborn)' failed too: OSError('cannot close')" in (
        caught.value.__notes__
    )
    assert trace == ["a forward", "a closed"]


def test_a_second_yield_is_told_of_though_closing_fails():
    def twice(ctx):
        yield
        try:
            yield
        finally:
            raise OSError("cannot close")

    with pytest.raises(TaskError, match="'twice' yielded twice") as caught:
        Task().use(twice).run(1)
    assert "closing 'twice' failed too: OSError('cannot close')" in caught.value.__notes__


def test_an_exit_request_while_closing_leaves_run_when_all_is_closed(trace):
    def leaves(ctx):
        try:
            yield
        finally:
            sys.exit(3)

    with pytest.raises(SystemExit):
        Task().use(trace.generator("a")).use(leaves).use(lambda ctx: 1 / 0).run(1)
    assert trace == ["a forward", "a closed"]


@pytest.mark.parametrize("leave", [SystemExit, KeyboardInterrupt])
def test_an_async_def_may_ask_for_the_end_of_the_program(leave):
    async def quit(ctx):
        raise leave(3)

    with pytest.raises(leave) as caught:
        Task().use(quit).run(1)
    assert caught.value.args == (3,)


def test_coroutines_of_all_loops_share_one_event_loop_in_serial_mode():
    loops, background = [], []

    async def start(ctx):
        loops.append(asyncio.get_running_loop())
        if ctx.total_step == 0:
            background.append(asyncio.create_task(asyncio.sleep(0, "done")))

    async def finish(ctx):
        loops.append(asyncio.get_running_loop())
        assert await background[0] == "done"

    Task().use(start).use(finish).run(2)
    assert len(set(map(id, loops))) == 1 and loops[0].is_closed()


def test_a_task_runs_where_an_event_loop_is_running_already():
    async def notebook():
        async def work(ctx):
            await asyncio.sleep(0)
            ctx.done = True

        return Task().use(work).run(1).done

    assert asyncio.run(notebook()) is True


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


def test_leaving_the_with_block_ends_a_run_in_another_thread():
    started = threading.Event()
    with Task() as task:
        task.use(lambda ctx: started.set())
        thread = threading.Thread(target=task.run, daemon=True)
        thread.start()
        assert started.wait(30)
    assert task.ctx.finish
    thread.join(30)
    assert not thread.is_alive()


def test_an_exception_in_a_group_closes_its_open_members_and_names_both(trace):
    def fail(ctx):
        raise ValueError("broken")

    task = Task()
    task.use(trace.generator("outside")).use(task.serial(trace.generator("inside"), fail))
    with pytest.raises(ValueError, match="broken") as caught:
        task.run(1)
    assert trace == ["outside forward", "inside forward", "inside closed", "outside closed"]
    assert caught.value.__notes__ == [
        "in middleware 'fail', loop 0, node 0",
        "in middleware 'serial(middleware, fail)', loop 0, node 0",
    ]


def test_router_of_a_task_that_runs_alone():
    router = Task(labels=["gpu"]).router
    assert (router.is_active, router.node_id, router.peers) == (False, 0, ())
    assert router.labels == {"standalone", "gpu"}


def test_task_ctx_is_the_context_of_the_loop_that_runs():
    task = Task()
    task.ctx.keep("seen")
    task.ctx.seen = 0

    def work(ctx):
        assert task.ctx is ctx
        ctx.seen += 1

    assert task.use(work).run(3).seen == 3
    assert isinstance(task.ctx, Context)
