"""CONTRACT, section Task: exceptions, what is closed after them, and what is told of them."""

import asyncio
import sys
import threading

import pytest

from muster import Task, TaskError


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
