"""Programs that share keys of ctx between nodes; run by test_sharing.py."""

import os
import time
import warnings
from pathlib import Path

from node_programs import LONG, WholeTeamReady, until, within

from muster import Task

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
            task.use(produce).use(WholeTeamReady(task, len(expected), enough))
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
            WholeTeamReady(task, 2, lambda: me == 1 or task.parallel_ctx.get("number", 0) > 20)
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
        task.use(WholeTeamReady(task, 3, lambda: me == 0 or seen)).run()
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
