"""The programs that the contract tests run on nodes: a new process has to find them in a file.

Whatever waits here has a deadline, so that a broken promise is a failure and not a hang.
"""

import os
import signal
import sys
import time
import warnings
from pathlib import Path

from muster import Parallel, Task

LONG = 25.0


def until(condition, what, seconds=LONG):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for: {what}")
        time.sleep(0.001)


def within(seconds=LONG):
    """Return a middleware that raises when the run takes too long."""
    deadline = time.monotonic() + seconds

    def in_time(ctx):
        if time.monotonic() > deadline:
            raise AssertionError(f"the run went on for {seconds} s")
        time.sleep(0.0005)

    return in_time


class AllReady:
    """A middleware that ends the run once every node has what it waits for."""

    def __init__(self, task, size, is_ready):
        self.task, self.size, self.is_ready = task, size, is_ready
        self.heard, self.sent = set(), False
        task.on("ready", self.heard.add)
        task.use(within())

    def __call__(self, ctx):
        if not self.sent and self.is_ready():
            self.sent = True
            self.task.emit("ready", self.task.router.node_id)
        if self.task.router.node_id == 0 and len(self.heard) == self.size:
            ctx.finish = True


def nothing(ctx): ...


# ---- nodes, labels, router


def echo(*args, **kwargs):
    with Task() as task:
        return task.router.node_id, args, kwargs


def returns_after_the_next_one(directory, size):
    """Return on the last node first, on node 0 last."""
    with Task() as task:
        me = task.router.node_id
    if me + 1 < size:
        until(Path(directory, str(me + 1)).exists, "the next node")
    Path(directory, str(me)).touch()
    return me


def describe(labels=()):
    with Task(labels=list(labels)) as task:
        router = task.router
        return {
            "labels": set(router.labels),
            "peers": list(router.peers),
            "node_id": router.node_id,
            "is_active": router.is_active,
        }


def filtered(filters):
    """Return which of the filters had their middleware run here."""
    ran = []
    with Task() as task:
        for filter_labels in filters:
            name = ",".join(filter_labels)
            task.use(lambda ctx, name=name: ran.append(name), filter_labels=filter_labels)
        task.run(1, end="own")
    return ran


def for_nobody(directory):
    with Task() as task:
        task.use(lambda ctx: Path(directory, "looped").touch())
        task.use(nothing, filter_labels=["role.critic"])
        task.run(1)


def for_a_label_of_one_task():
    ran = []
    with Task() as task:
        me = task.router.node_id
    with Task(labels=["special"] if me == 1 else []) as task:
        task.use(lambda ctx: ran.append(me), filter_labels=["special"])
        task.run(1, end="own")
    return ran


# ---- sharing


def share_own(expected):
    """Share one key per node until everybody has got what it may expect."""
    with Task() as task:
        me = task.router.node_id
        wanted = [f"v{node}" for node in expected[me]]
        board = task.parallel_ctx

        def produce(ctx):
            ctx[f"v{me}"] = ctx.total_step
            ctx.share(f"v{me}")

        def enough():
            return all(board.get(key, 0) > 5 for key in wanted)

        if any(expected):
            task.use(produce).use(AllReady(task, len(expected), enough))
            task.run()
        else:
            task.use(produce).use(within()).run(100, end="own")
        return sorted(board)


def share_what_can_travel(named):
    """Node 1 shares all it has, or what it names; node 0 looks."""
    told = []
    with Task() as task, warnings.catch_warnings(record=True) as caught, open(os.devnull) as file:
        warnings.simplefilter("always")
        me = task.router.node_id
        stayed = []

        def produce(ctx):
            ctx.open_file, ctx.callback = file, lambda: 1
            ctx.number, ctx.text = ctx.total_step, "text"
            if named:
                ctx.share(*named)
            yield
            stayed.append(ctx.open_file is file and ctx.callback() == 1)

        task.use(produce, filter_labels=["node.1"])
        task.use(
            AllReady(task, 2, lambda: me == 1 or task.parallel_ctx.get("number", 0) > 20)
        ).run()
        told += [str(warning.message) for warning in caught]
        keys = set(task.parallel_ctx) - {"total_step"}
        return {"warnings": told, "keys": keys, "stayed": all(stayed)}


def values():
    """Return what can be sent, each in a form that is easily lost."""
    import numpy as np
    import torch

    net = torch.nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(torch.arange(6.0).reshape(2, 3))
        net.bias.zero_()
    return {
        "none": None,
        "true": True,
        "integer": -7,
        "big_integer": 2**200 + 1,
        "negative_big_integer": -(2**70),
        "real": 0.1,
        "infinity": float("-inf"),
        "text": "grüß \U0001f600",
        "bytes": b"\x00\xff",
        "empty_tuple": (),
        "nested": [1, (2, [3, (4,)]), {"a": (5,)}],
        "integer_keys": {1: "a", 2: {3: (4, 5)}},
        "tuple_keys": {(1, 2): "a"},
        "float32_scalar": np.float32(0.1),
        "int8_scalar": np.int8(-3),
        "bool_scalar": np.bool_(True),
        "array": np.arange(12, dtype=np.int16).reshape(3, 4),
        "big_array": np.arange(100_000, dtype=np.float64),
        "strided": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3],
        "no_dimension": np.array(2.5),
        "empty_array": np.zeros((0, 3), np.uint8),
        "bool_array": np.array([True, False]),
        "tensor": torch.arange(6, dtype=torch.int32).reshape(2, 3),
        "big_tensor": torch.arange(100_000, dtype=torch.float64),
        "bfloat16": torch.tensor([1.5, -2.25, 3e38], dtype=torch.bfloat16),
        "half": torch.tensor([0.1, 2.0], dtype=torch.float16),
        "bool_tensor": torch.tensor([True, False]),
        "scalar_tensor": torch.tensor(3.5),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "state_dict": net.state_dict(),
    }


def same(a, b):
    """Whether b is bit for bit, and by type, what a is."""
    import numpy as np
    import torch

    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(
            type(x) is type(y) and same(a[x], b[y]) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)


def send_values():
    """Node 0 shares every kind of value in one loop; node 1 compares, and writes into them."""
    with Task() as task:
        me = task.router.node_id
        result = {}

        def look(ctx):
            board = task.parallel_ctx
            board.wait("none", timeout=LONG)
            for name, value in values().items():
                if not same(value, board[name]):
                    result[name] = f"{type(board[name])} {board[name]!r}"
            try:
                for name in ("array", "big_array", "strided"):
                    board[name][:] = 1
                board.big_tensor.fill_(1)
                board.bfloat16.fill_(1)
                board.state_dict["weight"].fill_(1)
            except Exception as error:
                result["writable"] = repr(error)
            ctx.finish = True

        def send(ctx):
            if ctx.total_step == 0:
                sent = values()
                ctx.update(sent)
                ctx.share(*sent)
                task.sent = sent

        task.use(send, filter_labels=["node.0"]).use(look, filter_labels=["node.1"])
        task.use(within()).run()
        if me == 0:
            result = {
                name: "was written by the receiver"
                for name, value in values().items()
                if not same(value, task.sent[name])
            }
        return result


def private_values():
    """Node 0 shares an array and writes into its own later; nodes 1 and 2 write into theirs."""
    import numpy as np

    with Task() as task:
        me = task.router.node_id
        mine = np.zeros(50_000)
        small = np.zeros(3)
        seen = []

        def send(ctx):
            if ctx.total_step == 0:
                ctx.mine, ctx.small = mine, small
                ctx.share("mine", "small")
            else:
                mine[:] = 9
                small[:] = 9

        def look(ctx):
            if not seen:
                task.parallel_ctx.wait("mine", timeout=LONG)
                both = task.parallel_ctx.mine, task.parallel_ctx.small
                if me == 1:
                    for array in both:
                        array[:] = 5
                    task.emit("written")
                else:
                    until(lambda: written, "node 1 to write")
                seen.extend(float(array.max()) for array in both)

        written = []
        task.on("written", lambda: written.append(1))
        task.use(send, filter_labels=["node.0"]).use(look, filter_labels=["node.1", "node.2"])
        task.use(AllReady(task, 3, lambda: me == 0 or seen)).run()
        return seen


def whole_messages(loops):
    """Node 1 shares two keys of one loop; node 0 takes snapshots as fast as it can."""
    with Task() as task:
        board = task.parallel_ctx
        snapshots = []

        def send(ctx):
            ctx.first = ctx.second = ctx.total_step
            if ctx.total_step == 0:
                ctx.only_once = "once"
            ctx.share("first", "second", "only_once")
            if ctx.total_step == loops:
                ctx.keep("first", "second")
                task.wait_for("seen", timeout=LONG)

        def look(ctx):
            board.wait("first", timeout=LONG)
            deadline = time.monotonic() + LONG
            while time.monotonic() < deadline:
                got = board.snapshot()
                snapshots.append((got["first"], got["second"]))
                if got["first"] == loops - 1:
                    break
            ctx.source = board.source("first")
            ctx.once = board.only_once
            task.emit("seen")
            ctx.finish = True

        task.use(send, filter_labels=["node.1"]).use(look, filter_labels=["node.0"])
        ctx = task.run()
        return snapshots, ctx.get("source"), ctx.get("once")


def read_the_board():
    """Node 1 shares `x`; node 0 reads it in every way there is."""
    with Task() as task:
        board = task.parallel_ctx
        result = {}

        def look(ctx):
            value = board.wait("x", timeout=LONG)
            result["wait"] = value >= 0
            result["attribute"] = board.x >= 0
            result["item"] = board["x"] >= 0
            result["get"] = board.get("x") >= 0
            result["get absent"] = board.get("never"), board.get("never", 3)
            result["in"] = "x" in board, "never" in board
            result["iteration"] = sorted(board)
            result["source"] = board.source("x")
            above = board.x
            result["above"] = board.wait("x", above=above, timeout=LONG) > above
            for name, read in {
                "absent attribute": lambda: board.never,
                "absent item": lambda: board["never"],
                "timeout": lambda: board.wait("never", timeout=0.05),
                "timeout above": lambda: board.wait("x", above=10**9, timeout=0.05),
            }.items():
                try:
                    result[name] = read()
                except Exception as error:
                    result[name] = [kind.__name__ for kind in type(error).__mro__]
            ctx.finish = True

        def send(ctx):
            ctx.x = ctx.total_step
            ctx.share("x")

        task.use(send, filter_labels=["node.1"]).use(look, filter_labels=["node.0"])
        task.use(within()).run()
        return result


def wait_for_what_never_comes():
    """Node 1 waits for a key; node 0 finishes."""
    with Task() as task:
        result = []

        def wait(ctx):
            task.emit("waiting")
            result.append(task.parallel_ctx.wait("never", timeout=LONG))
            result.append(ctx.finish)

        def end(ctx):
            ctx.finish = bool(waiting)

        waiting = []
        task.on("waiting", lambda: waiting.append(1))
        task.use(wait, filter_labels=["node.1"]).use(end, filter_labels=["node.0"])
        task.use(within()).run()
        return result


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slow_reader(loops, size):
    """Node 1 shares `size` bytes a loop as fast as it can; node 0 looks now and then."""
    import numpy as np

    with Task() as task:
        board = task.parallel_ctx
        memory, seen = [], []
        done = []
        task.on("done", lambda: done.append(1))

        def send(ctx):
            ctx.step, ctx.block = ctx.total_step, np.full(size, ctx.total_step % 250, np.uint8)
            ctx.share("step", "block")
            memory.append(resident())
            if ctx.total_step == loops:
                task.emit("done")
                task.wait_for("seen", timeout=LONG)

        def look(ctx):
            if not seen:
                board.wait("step", timeout=LONG)
            got = board.snapshot()
            assert got["block"][0] == got["block"][-1] == got["step"] % 250
            seen.append(got["step"])
            memory.append(resident())
            if done:
                seen.append(board.wait("step", above=loops - 2, timeout=LONG))
                task.emit("seen")
                ctx.finish = True
            time.sleep(0.02)  # a slow reader is what this is about

        task.use(send, filter_labels=["node.1"]).use(look, filter_labels=["node.0"])
        task.use(within(), filter_labels=["node.0"]).run()
        return memory, seen


def reads_after_the_sender_left(directory):
    """Node 0 shares, ends itself and leaves; node 1 comes to its first look afterwards."""
    with Task() as task:
        me = task.router.node_id
        seen = []

        def look(ctx):
            until(Path(directory, "left").exists, "node 0 to leave")
            seen.append(task.parallel_ctx.wait("x", above=8, timeout=5.0))

        def send(ctx):
            ctx.x = ctx.total_step
            ctx.share("x")

        task.use(send, filter_labels=["node.0"]).use(look, filter_labels=["node.1"])
        task.run(10 if me == 0 else 1, end="own")
    if me == 0:
        Path(directory, "left").touch()
    return seen


def starts_late():
    """Node 1 makes its task late; its first look finds the newest state."""
    with Task() as task:
        me = task.router.node_id
    if me == 1:
        time.sleep(0.5)  # being late is what this is about
    with Task() as task:
        seen = []

        def send(ctx):
            if ctx.total_step == 0:
                ctx.early = "early"
            ctx.x = ctx.total_step
            ctx.share("early", "x")

        def look(ctx):
            started = time.monotonic()
            seen.append(task.parallel_ctx.wait("early", timeout=LONG))
            seen.append(time.monotonic() - started)
            ctx.finish = True

        task.use(send, filter_labels=["node.0"]).use(look, filter_labels=["node.1"])
        task.use(within()).run()
        return seen


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

        task.use(emit).use(AllReady(task, 3, complete)).run()
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
        task.use(AllReady(task, 2, lambda: len(calls) >= count and len(answers) >= count)).run()
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

        task.use(emit).use(AllReady(task, 2, lambda: len(heard) >= count)).run()
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
        task.use(AllReady(task, 2, lambda: heard["ping"][-1:] == [100])).run()
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
        task.use(AllReady(task, 2, lambda: me == 0 or "timeout" in result)).run()
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


# ---- channels


def many_writers(count):
    """Nodes 1 and 2 put into two channels, node 0 into one of them; node 0 reads both."""
    from muster.flow.channel import Channel

    with Task() as task:
        me = task.router.node_id
        first = Channel("first", home=0, capacity=4)
        second = Channel("second", home="node.0", capacity=64)
        got = {"first": [], "second": []}

        def write(ctx):
            if ctx.total_step == 0:
                for number in range(count):
                    assert first.put((me, number), timeout=LONG)
                    assert second.put((me, number), timeout=LONG)

        def read(ctx):
            for _ in range(2 * count):
                got["first"].append(first.get(timeout=LONG))
                got["second"].append(second.get(timeout=LONG))
            ctx.finish = True

        task.use(read if me == 0 else write).use(within()).run()
        return got


def killed_writer(count, size, directory):
    """Node 1 puts `count` items and dies at once, twice; node 0 reads what it had put."""
    import numpy as np

    from muster.flow.channel import Channel

    with Task() as task:
        me, incarnation = task.router.node_id, task.router.incarnation
        channel = Channel("items", home=0, capacity=2 * count)
        got = []

        def write(ctx):
            if ctx.total_step == 0:
                for number in range(count):
                    assert channel.put({"id": (incarnation, number), "load": np.zeros(size)})
                if incarnation < 2:
                    os.kill(os.getpid(), signal.SIGKILL)

        def read(ctx):
            while len(got) < 3 * count:
                item = channel.get(timeout=10.0)
                got.append(item["id"])
            ctx.finish = True

        task.use(read if me == 0 else write).use(within()).run()
        return got


def full_channel(directory):
    """Node 1 fills a channel that nobody reads until it has been told so."""
    from muster.flow.channel import Channel

    with Task() as task:
        me = task.router.node_id
        channel = Channel("items", home=0, capacity=4)
        result = {"put": [], "got": []}
        full = []
        task.on("full", lambda: full.append(1))

        def write(ctx):
            if ctx.total_step:
                return
            try:
                for number in range(100):
                    result["put"].append(channel.put(number, timeout=0.2))
            except TimeoutError:
                result["timeout"] = True
            task.emit("full")
            started = time.monotonic()
            result["later"] = channel.put("later", timeout=LONG)
            result["waited"] = time.monotonic() - started
            task.emit("written")

        def read(ctx):
            until(lambda: full, "the channel to be full")
            try:
                result["get timeout"] = None
                while True:
                    result["got"].append(channel.get(timeout=0.5))
            except TimeoutError:
                result["get timeout"] = True
            ctx.finish = True

        task.use(read if me == 0 else write).use(within()).run()
        return result


def channel_after_finish():
    """Node 0 ends the run while node 1 waits in `put` and node 2 in `get`."""
    from muster.flow.channel import Channel

    with Task() as task:
        me = task.router.node_id
        full = Channel("full", home=0, capacity=2)
        empty = Channel("empty", home=2, capacity=2)
        left = Channel("left", home=2, capacity=8)
        result = {}
        waiting = set()
        task.on("waiting", waiting.add)

        def put(ctx):
            for number in range(3):
                left.put(number)
            full.put(0)
            full.put(1)
            task.emit("waiting", me)
            result["put"] = full.put(2)
            result["put again"] = full.put(3)

        def get(ctx):
            until(lambda: len(left) == 3, "what node 1 puts")
            task.emit("waiting", me)
            result["get"] = empty.get()
            result["left"] = [left.get() for _ in range(4)]
            result["rest"] = list(left)

        def end(ctx):
            until(lambda: waiting == {1, 2}, "both to wait")
            ctx.finish = True

        task.use([end, put, get][me]).run()
        return result


def channel_wait_is_no_hang():
    """A put that waits for longer than `hang_after` is not a hang, nor is a get."""
    from muster.flow.channel import Channel

    with Task() as task:
        me = task.router.node_id
        items = Channel("items", home=0, capacity=1)
        back = Channel("back", home=1, capacity=1)

        def write(ctx):
            items.put(1)
            items.put(2)
            assert back.get() == "over"
            ctx.finish = True

        def read(ctx):
            time.sleep(0.05)
            if ctx.total_step == 40:
                assert (items.get(), items.get()) == (1, 2)
            if ctx.total_step == 80:
                back.put("over")

        task.use(write if me == 1 else read).run()
        return "well"


# ---- misuse


def touches(directory, argument=None):
    Path(directory, "touched").touch()


def starts_nodes_on_a_node(engine):
    Parallel.runner(2, engine=engine)(echo)


def alone():
    with Task() as task:
        ctx = task.use(within()).run(5 * (task.router.node_id + 1))
        return ctx.total_step + 1


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
