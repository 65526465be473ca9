"""Programs that end, one node or all; run by test_finish.py."""

import os
import time
from pathlib import Path

from node_programs import LONG, until, within

from muster import Task

# ---- finish


def finishes(by, how):
    """One node ends the run; every node says what it saw."""
    with Task() as task:
        me = task.router.node_id
        seen = {"exit": 0, "after yield": []}

        def count():
            seen["exit"] += 1

        def work(ctx):
            yield
            seen["after yield"].append(ctx.finish)

        def end(ctx):
            if me == by and how == "ctx.finish" and ctx.total_step == 7:
                ctx.finish = True

        task.on("exit", count)
        task.use(work).use(end).use(within())
        ctx = task.run(8 if me == by and how == "max_step" else None)
        return {**seen, "finish": ctx.finish, "loops": ctx.total_step + 1}


def tutorial_waiting_loop():
    with Task() as task:
        me = task.router.node_id
        seen = []

        def wait(ctx):
            task.emit("inside")
            deadline = time.monotonic() + LONG
            while not ctx.finish:
                assert time.monotonic() < deadline, "finish was never seen inside the loop"
                time.sleep(0.005)
            yield
            seen.append(ctx.finish)

        def end(ctx):
            ctx.finish = len(inside) >= 2

        inside = []
        task.on("inside", lambda: inside.append(1))
        task.use(end if me == 0 else wait).use(within()).run()
        return seen


def ends_only_itself(directory):
    with Task() as task:
        me = task.router.node_id

        def go_on(ctx):
            if me == 0 and Path(directory, "ended").exists():
                ended.append(ctx.total_step)
            ctx.finish = len(ended) == 20

        ended = []
        task.use(go_on).use(within())
        ctx = task.run(3, end="own") if me == 1 else task.run()
        if me == 1:
            Path(directory, "ended").touch()
        return ctx.total_step + 1, len(ended)


def never_looks(how, directory):
    """Node 1 never comes out of its loop; node 0 finishes."""
    with Task() as task:
        me = task.router.node_id

        def stuck(ctx):
            Path(directory, f"stuck.{os.getpid()}").touch()
            while True:
                if how == "sleeps":
                    time.sleep(0.05)

        def end(ctx):
            ctx.finish = bool(list(Path(directory).glob("stuck.*")))

        task.use(stuck if me == 1 else end)
        if me == 0:
            task.use(within())
        task.run()
        return me


def alone():
    with Task() as task:
        ctx = task.use(within()).run(5 * (task.router.node_id + 1))
        return ctx.total_step + 1


def finish_on_the_way_back():
    """Node 1 finishes when node 0 has begun its way back."""
    with Task() as task:
        me = task.router.node_id
        back, seen = [], []
        task.on("back", lambda: back.append(1))

        def outer(ctx):
            yield
            if ctx.total_step == 3:
                task.emit("back")
                until(lambda: ctx.finish, "finish of node 1")

        def inner(ctx):
            yield
            seen.append(ctx.finish)

        def end(ctx):
            ctx.finish = bool(back)

        if me == 0:
            task.use(outer).use(inner)
        else:
            task.use(end)
        task.use(within()).run()
        return seen


def has_no_work_here(loops):
    """Node 0 loops; node 1 has no middleware and as few loops as it likes. Return the loops."""
    done = 0
    with Task() as task:

        def work(ctx):
            nonlocal done
            done += 1
            time.sleep(0.01)

        task.use(work, filter_labels=["node.0"])
        task.run(max_step=loops)
    return done


def has_no_work_and_all_others_leave(loops):
    """The same, where node 0 ends only itself."""
    with Task() as task:
        task.use(lambda ctx: None, filter_labels=["node.0"])
        task.run(max_step=loops, end="own")
    return task.router.node_id
