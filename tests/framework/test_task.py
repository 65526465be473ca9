"""CONTRACT, section Task: the loop, one process, one thread."""

import asyncio
import functools

import pytest

from muster import Context, Task, TaskError


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
