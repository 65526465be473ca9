"""CONTRACT, section Task: exit listeners are called before a signal leaves run. Real signals."""

import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from muster import StepTimer, Task

PROGRAM = """
import os, signal, sys, threading, time
from muster import StepTimer, Task

mode, stop = sys.argv[1:]

def work(ctx):
    try:
        yield
    finally:
        print("closed", flush=True)

def signal_this_thread():
    # The main thread is asleep by then: nothing but its own next look tells it.
    while not main_sleeps():
        time.sleep(0.005)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

def main_sleeps():
    return open(f"/proc/self/task/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] == "S"

def wait(ctx):
    print("ready", flush=True)
    if stop == "signalled aside":
        signal_this_thread()
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if stop != "never stops" and ctx.finish:
            return
        time.sleep(0.005)

async def wait_async(ctx):
    import asyncio
    print("ready", flush=True)
    if stop == "coroutine, signalled aside":
        signal_this_thread()
    try:
        await asyncio.sleep(300)
    finally:
        print("cancelled", flush=True)

with Task(async_mode=mode == "async") as task:
    task.on("exit", lambda: print("exit", flush=True))
    task.use(work).use(wait_async if stop.startswith("coroutine") else wait, after=work)
    task.run()
"""


@pytest.fixture
def start():
    children = []

    def _start(*arguments):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield _start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


@pytest.mark.parametrize(
    ("mode", "stop", "said"),
    [
        ("serial", "", "closed\nexit\n"),
        ("serial", "coroutine", "cancelled\nclosed\nexit\n"),
        ("async", "looks at finish", "closed\nexit\n"),
        ("async", "coroutine", "cancelled\nclosed\nexit\n"),
    ],
)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_closes_what_is_open_and_calls_exit_listeners(
    start, mode, stop, said, number, code
):
    child = start(mode, stop)
    child.send_signal(number)
    out, err = child.communicate(timeout=300)
    assert out == said
    assert child.returncode == code
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)


@pytest.mark.parametrize(
    ("mode", "stop", "said"),
    [
        ("async", "signalled aside", "closed\nexit\n"),
        ("serial", "coroutine, signalled aside", "cancelled\nclosed\nexit\n"),
        ("async", "coroutine, signalled aside", "cancelled\nclosed\nexit\n"),
    ],
)
def test_a_signal_that_does_not_wake_the_main_thread_is_heard(start, mode, stop, said):
    child = start(mode, stop)
    out, _ = child.communicate(timeout=100)
    assert (out, child.returncode) == (said, 143)


def test_a_second_signal_ends_a_program_whose_middleware_does_not_stop(start):
    child = start("async", "never stops")
    child.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert out.endswith("exit\n") and "KeyboardInterrupt" in err
    assert child.returncode == -signal.SIGINT


def test_a_second_sigterm_ends_it_at_once(start):
    child = start("async", "never stops")
    child.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=300) == -signal.SIGTERM


def test_the_handler_is_there_during_a_run_only_and_never_in_place_of_the_users():
    handlers = []
    note = lambda ctx: handlers.append(signal.getsignal(signal.SIGTERM))  # noqa: E731
    Task().use(note).run(1)
    assert callable(handlers[0]) and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def mine(number, frame): ...

    signal.signal(signal.SIGTERM, mine)
    try:
        Task().use(note).run(1)
        assert handlers[1] is mine and signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_task_runs_in_another_thread_too():
    result = []
    thread = threading.Thread(target=lambda: result.append(Task().use(lambda ctx: None).run(2)))
    thread.start()
    thread.join(30)
    assert result[0].total_step == 1


def test_a_signal_handler_may_emit_an_event():
    task = Task()
    heard = []
    task.on("save", lambda: heard.append(task.ctx.total_step))
    before = signal.signal(signal.SIGUSR1, lambda number, frame: task.emit("save"))
    try:
        task.use(lambda ctx: os.kill(os.getpid(), signal.SIGUSR1)).run(3)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [0, 1, 2]


class Interrupter:
    """A middleware that has a signal sent to this process soon after the run has begun."""

    def __init__(self, rng):
        self._delay = rng.uniform(0.0, 0.004)
        self._timer = threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGINT))

    def __call__(self, ctx):
        if ctx.total_step == 0:
            self._timer.start()


def nothing(ctx): ...


async def nothing_async(ctx): ...


def resource(ctx):
    yield


PROGRAMS = {
    "serial": lambda task: task.use(nothing).use(resource),
    "coroutine": lambda task: task.use(nothing_async),
    "async generator and timer": lambda task: task.use_step_wrapper(StepTimer(0)).use(
        nothing_async
    ),
    "parallel": lambda task: task.use(task.parallel(nothing, task.serial(nothing, resource))),
    "events": lambda task: task.use(lambda ctx: [task.emit("tick") for _ in range(50)]),
    "async": lambda task: task.use(nothing).use(resource),
    "async, one thread": lambda task: task.use(nothing).use(task.parallel(nothing, nothing_async)),
}


# A signal may fall between making a coroutine and handing it over; Python warns of those itself.
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_signal_at_any_moment_leaves_run_as_it_is_with_exit_called_and_nobody_left(kind):
    rng = random.Random(kind)
    threads = threading.active_count()
    for _ in range(60):
        exits = []
        workers = 1 if "one thread" in kind else None
        task = Task(
            async_mode=kind.startswith("async,") or kind == "async", n_async_workers=workers
        )
        task.on("tick", lambda: None).on("exit", lambda exits=exits: exits.append(1))
        interrupter = Interrupter(rng)
        PROGRAMS[kind](task.use(interrupter))
        with pytest.raises(KeyboardInterrupt):
            task.run()
        interrupter._timer.join()
        assert exits == [1]
        assert threading.active_count() == threads
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
