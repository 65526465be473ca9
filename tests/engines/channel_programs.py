"""Programs with channels between nodes; run by test_channels.py."""

import os
import signal
import time

from node_programs import LONG, until, within

from muster import Task

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


def two_channels_at_once():
    """Node 0 waits for whichever of two channels has something; node 1 decides which."""
    from muster import OptionError
    from muster.flow.channel import Channel

    with Task() as task:
        me = task.router.node_id
        first = Channel("first", home=0)
        second = Channel("second", home=0, beside=first)
        apart = Channel("apart", home=0)
        asked = Channel("asked", home=1)
        got = []

        def read(ctx):
            for name in ["second", "first", "second"]:
                asked.put(name)
                assert first.wait_for_any(second, timeout=LONG)
                got.append((len(first), len(second)))
                (first if len(first) else second).get()
            try:
                first.wait_for_any(second, timeout=0.05)
            except TimeoutError:
                got.append("timeout")
            try:
                first.wait_for_any(apart)
            except OptionError:
                got.append("refused")
            asked.put("finish")
            got.append(first.wait_for_any(second, timeout=LONG))

        def write(ctx):
            name = asked.get(timeout=LONG)
            if name == "finish":
                ctx.finish = True
            elif name is not None:
                {"first": first, "second": second}[name].put(1)

        task.use(write if me else read).run()
        return got
