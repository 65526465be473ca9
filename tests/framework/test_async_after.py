"""CONTRACT, section Task: the orders that `after` gives in async mode."""

import asyncio
import threading

from muster import Task


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
