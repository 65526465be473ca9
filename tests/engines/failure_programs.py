"""Programs whose nodes raise, die, hang and come back; run by test_failures.py."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

from node_programs import LONG, nothing, within

from muster import Task
from muster.flow import Team
from muster.framework.node import replacements

# ---- failures


class OddError(Exception):
    """Cannot be made again from its arguments, nor be pickled."""

    def __init__(self, a, b):
        super().__init__("odd")
        self.file = open(os.devnull)  # noqa: SIM115


def fails(how, directory=None, by=1):
    """Node `by` fails in its fourth loop; the others wait for the end."""
    with Task() as task:
        me = task.router.node_id
        if me == by and how == "raises before run":
            raise ValueError("no good at all")

        def fail(ctx):
            if me != by or ctx.total_step < 3:
                return
            if directory is not None:
                Path(directory, "failed").write_text(repr(time.time()))
            if how == "raises":
                raise ValueError("no good at all")
            if how == "raises odd":
                raise OddError(1, 2)
            if how == "exits":
                os._exit(0)
            if how == "sys.exit":
                sys.exit(0)
            if how == "sleeps":
                time.sleep(1000)
            if how == "spins":
                while True:
                    pass
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(1000)

        def wait(ctx):
            if me != by:
                deadline = time.monotonic() + LONG
                while not ctx.finish:
                    assert time.monotonic() < deadline, "the failure was not noticed"
                    time.sleep(0.002)
                    task.parallel_ctx.get("x")
                if directory is not None:
                    Path(directory, f"noticed.{me}").write_text(repr(time.time()))

        task.use(fail).use(within() if how != "spins" else nothing)
        if directory is not None and how not in ("sleeps", "spins", "SIGSTOP"):
            task.use(wait)
        task.run()


def raises_after_run():
    with Task() as task:
        task.use(nothing).run(3, end="own")
        if task.router.node_id == 1:
            raise ValueError("no good at all")


def returns_what_cannot_be_sent():
    with Task() as task:
        if task.router.node_id == 1:
            return lambda: 1
        return 1


def hangs(how):
    """Node 1 hangs; node 0 waits inside of muster all the while, which is no hang."""
    with Task() as task:
        me = task.router.node_id

        def wait(ctx):
            task.parallel_ctx.wait("never", timeout=LONG)

        def hang(ctx):
            if ctx.total_step < 3:
                return
            if how == "sleeps":
                time.sleep(1000)
            if how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                pass

        task.use(wait if me == 0 else hang).run()


def restarts(how, times, directory):
    """The first actor (node 1) dies `times` times; the learner sends its weights once."""
    with Task() as task:
        me, incarnation = task.router.node_id, task.router.incarnation
        board = task.parallel_ctx
        seen = []
        numbers = []
        task.on("number", lambda number: numbers.append(number))

        def learn(ctx):
            if ctx.total_step == 0:
                ctx.weights = "the weights"
            ctx.number = ctx.total_step
            ctx.share("weights", "number")
            if board.get("life1", -1) == times and board.get("seen1") == "the weights":
                ctx.finish = True

        def act(ctx):
            if not seen:
                started = time.monotonic()
                seen.append(board.wait("weights", timeout=LONG))
                seen.append(time.monotonic() - started)
            ctx[f"life{me}"], ctx[f"seen{me}"] = incarnation, seen[0]
            ctx.share(f"life{me}", f"seen{me}")
            if me == 1 and incarnation < times and ctx.total_step == 2:
                Path(directory, f"died.{incarnation}").touch()
                if how == "exits":
                    os._exit(1)
                os.kill(os.getpid(), getattr(signal, how))
                time.sleep(1000)

        task.use(learn, filter_labels=["role.learner"]).use(act, filter_labels=["role.actor"])
        ctx = task.use(within(), filter_labels=["role.learner"]).run()
        return {
            "incarnation": incarnation,
            "resumed": task.router.resumed,
            "replacements": replacements(),
            "seen": seen,
            "loops": ctx.total_step,
            "pid": os.getpid(),
        }


def dies_for_ever(directory):
    with Task() as task:
        me = task.router.node_id

        def die(ctx):
            Path(directory, f"life.{task.router.incarnation}").touch()
            os._exit(1)

        task.use(die if me == 1 else within()).run()


def dies_once_and_raises_then():
    with Task() as task:
        me, incarnation = task.router.node_id, task.router.incarnation

        def die(ctx):
            if incarnation == 0:
                os._exit(1)
            raise ValueError("no good at all")

        task.use(die if me == 1 else within()).run()


def finishes_while_another_is_dead(directory):
    with Task() as task:
        me = task.router.node_id

        def die(ctx):
            Path(directory, "died").touch()
            os._exit(1)

        def end(ctx):
            ctx.finish = Path(directory, "died").exists()

        task.use(die if me == 1 else end).use(within()).run()
        return me


# ---- what nodes leave running

SLEEPER = """
import os, sys, time
from pathlib import Path
for _ in range(int(sys.argv[2])):
    if os.fork():
        os._exit(0)
    os.setsid()
Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(1000)
"""


def leaves_running(directory, how, times=1, end="returns"):
    """Node 1 starts a process in a session of its own, and leaves it when it ends."""
    with Task() as task:
        me = task.router.node_id
        if me == 1 and how == "exec":
            words = [sys.executable, "-c", SLEEPER, str(directory), str(times)]
            subprocess.Popen(words, start_new_session=True)
        elif me == 1 and os.fork() == 0:
            os.setsid()
            Path(directory, str(os.getpid())).touch()
            time.sleep(1000)
        deadline = time.monotonic() + LONG
        while not os.listdir(directory):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if me == 1 and end != "returns":
            os.kill(os.getpid(), getattr(signal, end))
        return me


def starts_and_stays(directory, how):
    """Leaves a process, and does not end."""
    leaves_running(directory, how)
    time.sleep(1000)


def sees_a_neighbours_process_alive(directory):
    """Node 1 has a detached process; node 0 dies once and then says whether it is there still."""
    with Task() as task:
        me, directory = task.router.node_id, Path(directory)
        if me == 1:
            words = [sys.executable, "-c", SLEEPER, str(directory), "1"]
            subprocess.Popen(words, start_new_session=True)
        deadline = time.monotonic() + LONG
        while not (found := [path.name for path in directory.iterdir() if path.name.isdigit()]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if me == 0 and task.router.incarnation == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if me == 0:
            alive = Path(f"/proc/{found[0]}").exists()
            Path(directory, "seen").touch()
            return alive
        while not Path(directory, "seen").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return None


# ---- the same failure again and again, and nodes that do not end


def fails_at_one_place(how, directory):
    """Node 1 of a team fails before its sixth arrival, in every life."""
    team = Team({"row": ((2,), "i8")})
    with Task() as task:
        me = task.router.node_id

        def work(ctx):
            team.wait()
            if me == 1 and team.arrivals == 5:
                Path(directory, f"life.{task.router.incarnation}").touch()
                if how == "hangs":
                    time.sleep(1000)
                os.kill(os.getpid(), getattr(signal, how))
            team.meet()

        task.use(work).run(20)


def does_not_end(how):
    """Node 1 is done, but something keeps its process alive."""
    with Task() as task:
        me = task.router.node_id
        if me == 1 and how == "thread":
            threading.Thread(target=time.sleep, args=(1000,), name="the-forgotten").start()
        if me == 1 and how == "pool":
            ThreadPoolExecutor(2).submit(len, "")
        if me == 1 and how == "stuck":
            # In C, and with the interpreter: no thread of this process can do anything.
            util.Finalize(None, ctypes.PyDLL(None).pause, exitpriority=1)
        return me


def forks():
    """Node 1 forks a process, which says what sockets it has."""
    with Task() as task:
        task.use(nothing).run(3, end="own")
        if task.router.node_id == 0:
            return None
        read, write = os.pipe()
        if os.fork() == 0:
            found = []
            for fd in os.listdir("/proc/self/fd"):
                with suppress(OSError):  # the one that lists them
                    found.append(os.readlink(f"/proc/self/fd/{fd}"))
            os.write(write, ",".join(each for each in found if "socket" in each).encode() or b"-")
            os._exit(0)
        return os.read(read, 4096).decode()
