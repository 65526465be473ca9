"""What the loop itself costs, in microseconds and in multiples of a bare Python call.

    python benchmarks/task_overhead.py [--rounds 15] [--json benchmarks/results/task_overhead.json]

Every figure is taken once in each round, so that all of them see the same machine, and the median
over the rounds is reported with its quartiles. The cost of one middleware is the slope between a
task with few and a task with many of them; what the loop costs around them is the intercept. Exit
code 1 if a bound is missed.
"""

import argparse
import asyncio  # noqa: F401  # else the first coroutine's import would fall into a figure
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from muster import Context, Middleware, StepTimer, Task

FEW, MANY, LOOPS = 10, 110, 300
ASYNC_LOOPS = 300

BOUNDS = {
    "plain_above_bare_call_us": 1.0,
    "generator_us": 2.0,
    "timer_plain_extra_us": 1.5,
    "timer_generator_extra_us": 1.5,
    "async_loop_of_3_us": 120.0,
    "import_s": 0.3,
}


def plain(ctx: Context) -> None:
    """A middleware that does nothing."""


def generator(ctx: Context) -> Generator[None, None, None]:
    """A middleware that does nothing, twice."""
    yield


def seconds_per_loop(middleware: Middleware, count: int, timed: bool = False) -> float:
    """Run a serial task and return the time of one loop."""
    task = Task()
    if timed:
        task.use_step_wrapper(StepTimer(print_per_step=0))
    for _ in range(count):
        task.use(middleware)
    started = time.perf_counter()
    task.run(max_step=LOOPS)
    return (time.perf_counter() - started) / LOOPS


def seconds_per_middleware(middleware: Middleware, timed: bool = False) -> float:
    """Return what one more middleware adds to a loop."""
    many = seconds_per_loop(middleware, MANY, timed)
    few = seconds_per_loop(middleware, FEW, timed)
    return (many - few) / (MANY - FEW)


def seconds_per_bare_call() -> float:
    """Return the time of calling the same function in a plain for loop."""
    ctx = Context()
    functions = [plain] * MANY
    started = time.perf_counter()
    for _ in range(LOOPS):
        for function in functions:
            function(ctx)
    return (time.perf_counter() - started) / (LOOPS * MANY)


def seconds_per_async_loop() -> float:
    """Return the time of a loop of three middleware that do nothing, each on its thread."""
    task = Task(async_mode=True).use(plain).use(plain).use(plain)
    times: list[float] = []
    task.use_step_wrapper(_LoopClock(times))
    task.run(max_step=ASYNC_LOOPS)
    return statistics.mean(times[10:])  # without the loops in which threads are started


class _LoopClock:
    """A wrapper that wraps nothing and is told how long each loop took."""

    def __init__(self, times: list[float]) -> None:
        self._times = times

    def __call__(self, fn: Middleware) -> Middleware:
        return fn

    def end_loop(self, ctx: Context, seconds: float) -> None:
        self._times.append(seconds)


IMPORT = """
import time; started = time.perf_counter()
import muster
seconds = time.perf_counter() - started
import sys; print(seconds, *[name for name in ("torch", "ray", "numpy") if name in sys.modules])
"""


def import_seconds() -> float:
    """Return the time of `import muster` in a new interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, *heavy = run.stdout.split()
    if heavy:
        raise SystemExit(f"import muster also imported {', '.join(heavy)}")
    return float(seconds)


def one_round() -> dict[str, float]:
    """Take every figure once."""
    wall, cpu = time.perf_counter(), time.process_time()
    bare = seconds_per_bare_call()
    plain_s = seconds_per_middleware(plain)
    generator_s = seconds_per_middleware(generator)
    timed_plain_s = seconds_per_middleware(plain, timed=True)
    timed_generator_s = seconds_per_middleware(generator, timed=True)
    empty_loop_s = seconds_per_loop(plain, 0)
    cpu_share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    return {
        "bare_call_us": bare * 1e6,
        "plain_us": plain_s * 1e6,
        "plain_above_bare_call_us": (plain_s - bare) * 1e6,
        "generator_us": generator_s * 1e6,
        "timer_plain_extra_us": (timed_plain_s - plain_s) * 1e6,
        "timer_generator_extra_us": (timed_generator_s - generator_s) * 1e6,
        "empty_loop_us": empty_loop_s * 1e6,
        "async_loop_of_3_us": seconds_per_async_loop() * 1e6,
        "import_s": import_seconds(),
        "cpu_share": cpu_share,
    }


def measure(rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Take all figures in every round and summarise them."""
    one_round()  # warm up
    taken = []
    for number in range(rounds):
        taken.append(one_round())
        say(f"round {number + 1} of {rounds}")
    figures: dict[str, dict[str, float]] = {}
    for name in taken[0]:
        low, median, high = statistics.quantiles([each[name] for each in taken], n=4)
        figures[name] = {"median": round(median, 4), "q1": round(low, 4), "q3": round(high, 4)}
    bare = figures["bare_call_us"]["median"]
    return {
        "command": "python benchmarks/task_overhead.py " + f"--rounds {rounds}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "figures": figures,
        "in_bare_calls": {
            name: round(figure["median"] / bare, 2)
            for name, figure in figures.items()
            if name.endswith("_us")
        },
        "bounds": {
            name: {"at_most": bound, "met": figures[name]["median"] <= bound}
            for name, bound in BOUNDS.items()
        },
    }


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Measure what muster's loop itself costs.")
    parser.add_argument(
        "--rounds", type=int, default=15, help="rounds to take the median over (15)"
    )
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds has to be 2 or more, for a median")
    result = measure(options.rounds, lambda line: print(line, file=sys.stderr))
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if not all(bound["met"] for bound in result["bounds"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
