"""Programs that send events between nodes; run by test_node_events.py."""

import time

from node_programs import LONG, WholeTeamReady, within

from muster import Task

# ---- events


def bursts(count):
    """Every node emits a burst to all; every node says what it heard."""
    with Task() as task:
        me = task.router.node_id
        heard = {node: [] for node in range(3)}
        other = []
        task.on("tick", lambda node, number: heard[node].append(number))
        task.on("local", lambda node: other.append(("local", node)))
        task.on("remote", lambda node: other.append(("remote", node)))

        def emit(ctx):
            if ctx.total_step == 0:
                task.emit("local", me, only_local=True)
                task.emit("remote", me, only_remote=True)
                for number in range(count):
                    task.emit("tick", me, number)

        def complete():
            return all(len(each) >= count for each in heard.values())

        task.use(emit).use(WholeTeamReady(task, 3, complete)).run()
        return {
            "lost": {node: count - len(set(each)) for node, each in heard.items()},
            "in order": all(each == list(range(count)) for each in heard.values()),
            "other": sorted(other),
        }


def echoes(count, size):
    """Both nodes emit at each other, and answer from the listener."""
    with Task() as task:
        me = task.router.node_id
        calls, answers = [], []

        def call(node, number, load):
            if node != me:
                calls.append(number)
                task.emit("answer", me, number, load, only_remote=True)

        task.on("call", call)
        task.on("answer", lambda node, number, load: answers.append(number))

        def emit(ctx):
            if ctx.total_step == 0:
                for number in range(count):
                    task.emit("call", me, number, b"x" * size)

        task.use(emit)
        task.use(
            WholeTeamReady(task, 2, lambda: len(calls) >= count and len(answers) >= count)
        ).run()
        return calls == list(range(count)), answers == list(range(count))


def large_events(count):
    import numpy as np

    with Task() as task:
        me = task.router.node_id
        heard = []
        task.on("load", lambda array: heard.append((int(array[0]), int(array[-1]), array.nbytes)))

        def emit(ctx):
            if ctx.total_step == 0 and me == 1:
                for number in range(count):
                    task.emit("load", np.full(250_000, number, np.float32))

        task.use(emit).use(WholeTeamReady(task, 2, lambda: len(heard) >= count)).run()
        return heard


def listeners():
    """Node 0 emits; node 1 has listeners of every kind."""
    with Task() as task:
        me = task.router.node_id
        heard = {"once": [], "off": [], "after the failed": [], "every": [], "ping": []}

        def off(number):
            heard["off"].append(number)
            task.off("x", off)

        def broken(number):
            if me == 1:
                raise ValueError("the listener is no good")

        def ping(number):
            heard["ping"].append(number)
            if number < 100 and number % 2 == 1 - me:
                task.emit("ping", number + 1)

        if me == 1:
            task.once("x", heard["once"].append)
            task.on("x", off).on("x", broken).on("x", heard["after the failed"].append)
        task.on("x", heard["every"].append)
        task.on("ping", ping)

        def emit(ctx):
            if ctx.total_step == 0 and me == 0:
                for number in range(3):
                    task.emit("x", number)
                task.emit("ping", 0)

        task.use(emit)
        task.use(WholeTeamReady(task, 2, lambda: heard["ping"][-1:] == [100])).run()
        return heard


def waits_for_events():
    with Task() as task:
        me = task.router.node_id
        result = {}

        def wait(ctx):
            if ctx.total_step:
                return
            result["go"] = task.wait_for("go", timeout=LONG)
            started = time.monotonic()
            try:
                task.wait_for("never", timeout=0.1)
            except TimeoutError as error:
                result["timeout"] = type(error).__name__, time.monotonic() - started < 5
            task.emit("woken")

        def emit(ctx):
            task.emit("go", 1, key="value", only_remote=True)

        task.use(wait if me == 1 else emit)
        task.use(WholeTeamReady(task, 2, lambda: me == 0 or "timeout" in result)).run()
        return result


def emits_in_the_last_loop():
    with Task() as task:
        heard = []
        task.on("last", heard.append)

        def last(ctx):
            if task.router.node_id == 1 and ctx.total_step == 5:
                ctx.finish = True
            yield
            if task.router.node_id == 1 and ctx.finish:
                for number in range(100):
                    task.emit("last", number)

        task.use(last).use(within()).run()
        return heard


def finishes_while_another_waits_for_an_event():
    with Task() as task:
        me = task.router.node_id
        waiting = []
        task.on("waiting", lambda: waiting.append(1))

        def wait(ctx):
            task.emit("waiting")
            task.wait_for("never", timeout=LONG)

        def end(ctx):
            ctx.finish = bool(waiting)

        task.use(wait if me == 1 else end).use(within()).run()
        return me
