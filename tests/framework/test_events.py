"""CONTRACT, section Task: events."""

import sys
import threading
import time

import pytest

from muster import MiddlewareError, OptionError, RunCancelled, Task

LONG = 200.0


@pytest.fixture
def task():
    return Task()


@pytest.fixture
def heard():
    return []


def test_the_sender_hears_its_own_event(task, heard):
    task.on("solved", lambda *args, **kwargs: heard.append((args, kwargs)))
    task.emit("solved", 475, by="dqn")
    assert heard == [((475,), {"by": "dqn"})]


def test_only_local_stays_here_and_only_remote_goes_elsewhere(task, heard):
    task.on("x", heard.append)
    task.emit("x", "local", only_local=True)
    task.emit("x", "remote", only_remote=True)
    assert heard == ["local"]


def test_listeners_are_called_in_the_order_in_which_they_were_added(task, heard):
    task.on("x", lambda: heard.append(1)).on("x", lambda: heard.append(2))
    task.emit("x")
    assert heard == [1, 2]


def test_a_listener_is_called_once_for_each_event_even_if_it_was_added_twice(task, heard):
    task.on("x", heard.append).on("x", heard.append)
    task.emit("x", 1)
    assert heard == [1]


def test_once_hears_one_event(task, heard):
    task.once("x", heard.append)
    task.emit("x", 1)
    task.emit("x", 2)
    assert heard == [1]


def test_once_hears_one_event_though_it_emits_the_next_one_itself(task, heard):
    def listener(number):
        heard.append(number)
        task.emit("x", number + 1)

    task.once("x", listener)
    task.emit("x", 1)
    assert heard == [1]


def test_off_forgets_one_listener_or_all_of_a_name(task, heard):
    def other(value):
        heard.append(f"other {value}")

    task.on("x", heard.append).on("x", other).on("y", heard.append)
    task.off("x", heard.append)
    task.emit("x", 1)
    task.off("x")
    task.emit("x", 2)
    task.emit("y", 3)
    task.off("never heard of").off("y", other)
    assert heard == ["other 1", 3]


def test_on_after_once_hears_every_event(task, heard):
    task.once("x", heard.append).on("x", heard.append)
    task.emit("x", 1)
    task.emit("x", 2)
    assert heard == [1, 2]


def test_off_during_a_delivery_holds_at_once(task, heard):
    def second():
        heard.append("second")

    task.on("x", lambda: task.off("x", second)).on("x", second)
    task.emit("x")
    assert heard == []


def test_an_event_emitted_by_a_listener_comes_after_the_one_being_delivered(task, heard):
    """In order per sender: the second listener must not hear b before a."""
    task.on("a", lambda: task.emit("b"))
    task.on("a", lambda: heard.append("a"))
    task.on("b", lambda: heard.append("b"))
    task.emit("a")
    assert heard == ["a", "b"]


def test_a_listener_that_raises_is_reported_and_the_next_event_still_arrives(task, heard, caplog):
    def broken(value):
        raise ValueError("no good")

    task.on("x", broken).on("x", heard.append)
    task.emit("x", 1)
    task.emit("x", 2)
    assert heard == [1, 2]
    assert "listener 'broken' of event 'x' failed" in caplog.text and "no good" in caplog.text


def test_a_listener_that_exits_does_so_after_the_others_have_heard(task, heard):
    task.on("x", lambda: sys.exit(3)).on("x", lambda: heard.append("x"))
    with pytest.raises(SystemExit):
        task.emit("x")
    task.emit("x", only_remote=True)
    assert heard == ["x"]
    with pytest.raises(SystemExit):
        task.emit("x")
    assert heard == ["x", "x"], "and the next event still arrives"


def test_a_name_may_be_an_argument_too(task, heard):
    task.on("episode", lambda name: heard.append(name))
    task.emit("episode", name="cartpole")
    assert heard == ["cartpole"]


def test_no_event_is_lost_while_another_thread_adds_and_removes_listeners(task):
    interval = sys.getswitchinterval()
    heard, stop = [], threading.Event()

    def churn():
        def other(): ...

        while not stop.is_set():
            task.on("x", other).off("x", other)

    task.on("x", lambda: heard.append(1))
    thread = threading.Thread(target=churn)
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(20_000):
            task.emit("x")
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join(LONG)
    assert len(heard) == 20_000


def test_events_of_many_threads_arrive_once_each_in_order_of_each_and_never_two_at_a_time(task):
    heard = {sender: [] for sender in range(4)}
    inside = threading.Lock()

    def listener(sender, number):
        assert inside.acquire(blocking=False), "two listeners at a time"
        heard[sender].append(number)
        inside.release()

    task.on("x", listener)

    def send(sender):
        for number in range(500):
            task.emit("x", sender, number)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in heard]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert heard == {sender: list(range(500)) for sender in heard}


class Waiter(threading.Thread):
    """Waits for an event, and keeps what came of it."""

    def __init__(self, task, name, timeout=LONG):
        super().__init__(daemon=True)
        self.task, self.event, self.timeout = task, name, timeout
        self.outcome = None
        self.start()
        while not task._events._waiting.get(name):
            time.sleep(0.0005)

    def run(self):
        try:
            self.outcome = self.task.wait_for(self.event, timeout=self.timeout)
        except Exception as error:
            self.outcome = error


def test_wait_for_wakes_with_the_arguments_and_leaves_nothing_behind(task):
    waiters = [Waiter(task, "x"), Waiter(task, "x")]
    task.emit("y")
    task.emit("x", 1, key=2)
    for waiter in waiters:
        waiter.join(LONG)
        assert waiter.outcome == ((1,), {"key": 2})
    assert task._events._waiting == {}


def test_wait_for_raises_timeout_error_and_leaves_nothing_behind(task):
    with pytest.raises(TimeoutError, match=r"no event 'x' within 0\.001 s"):
        task.wait_for("x", timeout=0.001)
    assert task._events._waiting == {}


def test_wait_for_is_woken_before_a_slow_listener_has_ended(task):
    waiter = Waiter(task, "x")

    def slow():
        waiter.join(LONG)

    task.on("x", slow)
    task.emit("x")
    assert waiter.outcome == ((), {})


def test_wait_for_ends_when_the_run_does(task):
    waiter = Waiter(task, "x")
    task.use(lambda ctx: None).run(1)
    waiter.join(LONG)
    assert isinstance(waiter.outcome, RunCancelled)
    assert "the wait for event 'x' was cancelled" in str(waiter.outcome)
    with pytest.raises(RunCancelled):
        task.wait_for("x", timeout=LONG)


def test_leaving_the_with_block_ends_a_wait_for_what_never_comes(task):
    with task:
        waiter = Waiter(task, "x")
    waiter.join(LONG)
    assert isinstance(waiter.outcome, RunCancelled)


def test_exit_listeners_have_run_when_run_returns_though_another_thread_delivers(task, heard):
    delivering, go_on = threading.Event(), threading.Event()

    def slow():
        delivering.set()
        go_on.wait(LONG)

    task.on("slow", slow).on("exit", lambda: heard.append("exit"))
    thread = threading.Thread(target=task.emit, args=("slow",))
    thread.start()
    assert delivering.wait(LONG)
    task.use(lambda ctx: None).run(1)
    assert heard == ["exit"]
    go_on.set()
    thread.join(LONG)


def test_an_exit_listener_that_wants_arguments_is_refused_before_the_run(task):
    with pytest.raises(MiddlewareError) as caught:
        task.on("exit", lambda ctx: None)
    assert "cannot be called without arguments: missing a required argument" in str(caught.value)


def test_exit_can_be_waited_for(task):
    waiter = Waiter(task, "exit")
    task.use(lambda ctx: None).run(1)
    waiter.join(LONG)
    assert waiter.outcome == ((), {})


def test_events_reach_listeners_from_inside_the_loop(task, heard):
    task.on("step", heard.append)
    task.use(lambda ctx: task.emit("step", ctx.total_step)).run(3)
    assert heard == [0, 1, 2]


def test_emit_refuses_only_local_with_only_remote(task):
    with pytest.raises(OptionError, match="leave no receiver"):
        task.emit("x", only_local=True, only_remote=True)


def test_emit_refuses_exit_because_the_task_emits_it(task):
    with pytest.raises(OptionError) as caught:
        task.emit("exit")
    assert "the task emits it itself" in str(caught.value)
    assert "try: ctx.finish = True" in str(caught.value)


@pytest.mark.parametrize("method", ["on", "once"])
def test_a_listener_has_to_be_callable(task, method):
    with pytest.raises(MiddlewareError) as caught:
        getattr(task, method)("exit", None)
    assert "a listener must be callable, not None" in str(caught.value)
    assert "try: task.on('exit', save), without brackets" in str(caught.value)


@pytest.mark.parametrize("method", ["on", "once"])
def test_a_listener_that_nobody_would_await_is_refused(task, method):
    async def save(): ...

    with pytest.raises(MiddlewareError, match="the listener 'save' is a generator or an async"):
        getattr(task, method)("exit", save)
