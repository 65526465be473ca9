"""Bursts between two nodes: what is lost, what is out of order, what grows.

    python -m benchmarks.bursts [--json benchmarks/results/bursts.json]

10,000 small messages and 500 of 1 MB at once, as events and through a channel, to a reader that is
slower than the writer; and a board that is written as fast as possible for a reader that looks ten
times a second. Exit code 1 if anything is lost or out of order, or if memory grows.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import rounds as taking
from benchmarks.backpressure import memory

from muster import Context, Parallel, Task
from muster.flow import Channel

SMALL, LARGE = 10_000, 500
MEGABYTE = 1_000_000
BOARD_SECONDS = 5.0


def payload(number: int, size: int) -> Any:
    """Return a numbered message of about `size` bytes."""
    return (number, np.full(size // 4, number, np.float32)) if size else number


def number_of(message: Any) -> int:
    """Return the number of a message, after a look at all of it."""
    if not isinstance(message, tuple):
        return int(message)
    number, array = message
    assert (array == number).all()
    return int(number)


def verdict(got: list[int], count: int) -> dict[str, int]:
    """Compare what came with what was sent."""
    return {
        "sent": count,
        "lost": count - len(set(got)),
        "twice": len(got) - len(set(got)),
        "out_of_order": sum(a > b for a, b in pairwise(got)),
    }


def events(count: int, size: int) -> dict[str, int] | None:
    """Emit a burst on node 0, hear it on node 1."""
    got: list[int] = []
    with Task() as task:
        task.on("burst", lambda message: got.append(number_of(message)))

        def send(ctx: Context) -> None:
            for number in range(count):
                task.emit("burst", payload(number, size), only_remote=True)
            ctx.finish = True

        task.use(send, filter_labels=["node.0"])
        task.use(lambda ctx: time.sleep(0.001), filter_labels=["node.1"])
        task.run()
    return verdict(got, count) if task.router.node_id else None


def channel(count: int, size: int) -> dict[str, int] | None:
    """Put a burst on node 0, get it on node 1."""
    items = Channel("burst", home=1)
    if not items.is_home:
        for number in range(count):
            items.put(payload(number, size))
        return None
    return verdict([number_of(items.get()) for _ in range(count)], count)


def board() -> dict[str, Any]:
    """Share 1 MB in every loop of node 0; look at it now and then on node 1."""
    state = np.zeros(MEGABYTE // 4, np.float32)
    seen: list[int] = []
    before = 0.0
    started = time.monotonic()
    with Task() as task:

        def write(ctx: Context) -> None:
            ctx.share("state", "number")
            ctx.number = ctx.total_step
            ctx.state = state
            ctx.finish = time.monotonic() - started > BOARD_SECONDS

        def look(ctx: Context) -> None:
            ctx.share("nothing")
            seen.append(task.parallel_ctx.wait("number") or 0)
            time.sleep(0.1)

        def watch(ctx: Context) -> None:
            nonlocal before
            if not before and time.monotonic() - started > 1.0:
                before = memory()

        task.use(write, filter_labels=["node.0"])
        task.use(look, filter_labels=["node.1"])
        task.use(watch)
        loops = task.run().total_step
    return {
        "loops": loops,
        "looks": len(seen),
        "went_back": sum(a > b for a, b in pairwise(seen)),
        "grown_mb": round(memory() - before, 2),
    }


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Bursts between two nodes.")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    setting = taking.machine()
    found = {}
    for kind in (events, channel):
        for name, count, size in (("small", SMALL, 0), ("1 MB", LARGE, MEGABYTE)):
            found[f"{kind.__name__}, {name}"] = Parallel.runner(2)(kind, count, size)[1]
    writer, reader = Parallel.runner(2)(board)
    fine = all(not (each["lost"] + each["twice"] + each["out_of_order"]) for each in found.values())
    flat = max(writer["grown_mb"], reader["grown_mb"]) < 5 and not reader["went_back"]
    result = {
        "command": "python -m benchmarks.bursts",
        **setting,
        "bursts": found,
        "board": {"writer": writer, "reader": reader},
        "bounds": {
            "nothing lost, twice or out of order": {"met": fine},
            "board: newest only, memory grows by less than 5 MB": {"met": flat},
        },
    }
    taking.write(result, options.json)
    if not (fine and flat):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
