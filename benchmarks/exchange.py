"""What it costs to get something from one process to another: muster beside Pipe, ZeroMQ and Ray.

    python -m benchmarks.exchange [--rounds 5] [--json benchmarks/results/exchange.json]

In each round every transport is measured once, one after the other; medians over rounds. ZeroMQ and
Ray are skipped, and the result says so, where they are not installed
(`pip install -c constraints.txt pyzmq ray`). Exit code 1 if a bound is missed.

    ready_s        from the call of the runner until three workers are at work (Ray: actors, after
                   ray.init, which is measured apart)
    rtt_us         a small message there and back, median
    broadcast_ms   a state dict of 1 MB until the last of three readers has it as arrays, median
    gb_per_s       fragments of 200 kB through a channel from one writer to one reader
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import exchange_peers as peers
from benchmarks import rounds as taking

from muster import Parallel, Task
from muster.flow import Channel, ParameterServer

PINGS = 2_000
BROADCASTS = 60
FRAGMENTS = 3_000
FRAGMENT_BYTES = 200_000
READERS = 3

AT_MOST = {"muster ready_s": 2.0, "muster rtt_us": 120.0, "muster broadcast_ms": 1.5}
AT_LEAST = {"muster gb_per_s": 1.0, "pipe over muster broadcast": 4.0}


def at_work() -> float:
    """Return when this node was in its first loop."""
    times: list[float] = []
    with Task() as task:
        task.use(lambda ctx: times.append(time.monotonic()))
        task.run(max_step=1, end="own")
    return times[0]


def ping() -> float:
    """Return the median time of a message there and back, in seconds."""
    here, there = Channel("here", home=0), Channel("there", home=1)
    if not here.is_home:
        for _ in range(PINGS):
            here.put(there.get())
        return 0.0
    took = []
    for number in range(PINGS):
        started = time.perf_counter()
        there.put(number)
        here.get()
        took.append(time.perf_counter() - started)
    return float(np.median(took))


def broadcast() -> float:
    """Return the median time until the last of the readers has new weights, in seconds."""
    server = ParameterServer(home=0)
    had = Channel("had", home=0)
    if not server.is_home:
        version = 0
        for _ in range(BROADCASTS):
            weights = server.pull(newer_than=version)
            assert weights is not None
            version = weights.version
            had.put(time.monotonic())
        return 0.0
    state = peers.state_dict()
    took = []
    for _ in range(BROADCASTS):
        started = time.monotonic()
        server.push(state)
        took.append(max(had.get() for _ in range(READERS)) - started)
    return float(np.median(took))


def stream() -> float:
    """Return the rate of a channel in GB/s."""
    channel = Channel("fragments", home=0)
    if not channel.is_home:
        fragment = np.random.default_rng(0).random(FRAGMENT_BYTES // 8)
        for _ in range(FRAGMENTS):
            channel.put(fragment)
        return 0.0
    channel.get()
    started = time.perf_counter()
    for _ in range(FRAGMENTS - 1):
        channel.get()
    return (FRAGMENTS - 1) * FRAGMENT_BYTES / (time.perf_counter() - started) / 1e9


def one_round(with_zmq: bool, with_ray: bool) -> dict[str, float]:
    """Measure every transport once."""
    started = time.monotonic()
    figures = {"muster ready_s": max(Parallel.runner(READERS)(at_work)) - started}
    figures["muster rtt_us"] = Parallel.runner(2)(ping)[0] * 1e6
    figures["muster broadcast_ms"] = Parallel.runner(1 + READERS)(broadcast)[0] * 1e3
    figures["muster gb_per_s"] = Parallel.runner(2)(stream)[0]
    figures |= peers.pipe(READERS, PINGS, BROADCASTS, FRAGMENTS, FRAGMENT_BYTES)
    if with_zmq:
        figures |= peers.zmq(READERS, PINGS, BROADCASTS, FRAGMENTS, FRAGMENT_BYTES)
    if with_ray:
        figures |= peers.ray(READERS, PINGS // 10, BROADCASTS, FRAGMENTS // 10, FRAGMENT_BYTES)
    ratio = figures["pipe broadcast_ms"] / figures["muster broadcast_ms"]
    return figures | {"pipe over muster broadcast": ratio}


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Measure muster's exchange beside others.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take the median over (5)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    there = {name: importlib.util.find_spec(name) is not None for name in ("zmq", "ray")}
    setting = taking.machine()
    init = peers.start_ray() if there["ray"] else None
    try:
        figures, share = taking.take_rounds(
            lambda: one_round(there["zmq"], there["ray"]),
            options.rounds,
            lambda line: print(line, file=sys.stderr),
        )
    finally:
        if init is not None:
            peers.stop_ray()
    bounds: dict[str, Any] = {
        name: {"at_most": bound, "met": figures[name]["median"] <= bound}
        for name, bound in AT_MOST.items()
    }
    bounds |= {
        name: {"at_least": bound, "met": figures[name]["median"] >= bound}
        for name, bound in AT_LEAST.items()
    }
    result = {
        "command": f"python -m benchmarks.exchange --rounds {options.rounds}",
        **setting,
        "rounds": options.rounds,
        "cpu_share_of_this_process": share,
        "not_installed": [name for name, is_there in there.items() if not is_there],
        "ray_init_s": init,
        "figures": figures,
        "bounds": bounds,
    }
    taking.write(result, options.json)
    if not all(bound["met"] for bound in bounds.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
