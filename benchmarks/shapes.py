"""PPO at every shape that people train, beside other libraries: is there a cliff anywhere?

    python -m benchmarks.shapes --venvs DIR --cores 1 --json benchmarks/results/shapes_1.json
    python -m benchmarks.shapes --venvs DIR --cores 2 --json benchmarks/results/shapes_2.json

Hidden layers x observations x environments, the same recipe for all (`peers/trial.py`), on
environments that cost next to nothing (`peers/shaped_env.py`). DIR holds the peers' virtual
environments, as in `peers/ppo.py`. With `--cores 1` every process has one core to itself; with 2
muster has two workers, torch two threads, and sbx what it takes by itself.

Libraries are timed in turn at each shape, so that a ratio has seen one machine. `explained` is how
much slower a shape is than the one before it in the same row by the sums of its products alone;
`step` is how much slower muster is, divided by that. `cpu_share` is what each run had of a core (of
two with `--cores 2`). Exit code 1 if a bound is missed.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import rounds as taking
from benchmarks.peers.running import ROOT, pythons, say
from benchmarks.peers.shaped_env import SIZES

PEERS = ("sb3", "sbx", "skrl")
HIDDEN = ((64, 64), (128, 128), (255, 255), (256, 256), (400, 300), (512, 512, 512))
ENVS = (8, 64)
LEAST, MEDIAN, STEEPEST = 1.3, 4.0, 1.5


class Library:
    """A process that answers one shape after the other.

    Args:
        name: Of the library.
        python: That runs it.
        cores: That it may use.
        seconds: Of each timing.
    """

    def __init__(self, name: str, python: str, cores: int, seconds: float) -> None:
        self.name = name
        command = [python, "-m", "benchmarks.peers.shape_one", name]
        self._process = subprocess.Popen(
            [*command, "--cores", str(cores), "--seconds", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": _xla(cores)},
            preexec_fn=lambda: os.sched_setaffinity(0, range(cores)),
        )

    def time(self, shape: dict[str, Any]) -> dict[str, Any]:
        """Return what it did at one shape."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(shape) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended at {shape}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def _xla(cores: int) -> str:
    return "--xla_cpu_multi_thread_eigen=false" if cores == 1 else ""


def products(shape: dict[str, Any]) -> int:
    """Return the multiplications of a forward pass of policy and critic, for one observation."""
    widths: list[int] = [shape["observations"], *shape["hidden"]]
    inner = sum(a * b for a, b in itertools.pairwise(widths))
    return 2 * inner + 3 * widths[-1]


def timed(shapes: Sequence[dict[str, Any]], libraries: Sequence[Library], rounds: int) -> Any:
    """Return each shape with the steps per second of every library, in each round."""
    found = [{**shape, "rounds": []} for shape in shapes]
    for number in range(rounds):
        for cell in found:
            shape = {key: cell[key] for key in ("hidden", "observations", "num_envs")}
            one = {library.name: library.time(shape) for library in libraries}
            cell["rounds"].append(one)
            rates = ", ".join(f"{name} {each['steps_per_s']:,.0f}" for name, each in one.items())
            say(f"round {number + 1}, {_named(cell)}: {rates}")
    return found


def _named(cell: dict[str, Any]) -> str:
    layers = "x".join(map(str, cell["hidden"]))
    return f"{layers}, {cell['observations']} observations, {cell['num_envs']} envs"


def summed_up(cells: Sequence[dict[str, Any]]) -> None:
    """Add medians, ratios and steps to the cells."""
    before: dict[str, Any] = {}
    for cell in cells:
        names = cell["rounds"][0]
        cell["steps_per_s"] = {
            name: statistics.median(one[name]["steps_per_s"] for one in cell["rounds"])
            for name in names
        }
        peers = [name for name in names if name != "muster"]
        if peers:
            ratios = [
                one["muster"]["steps_per_s"] / max(one[name]["steps_per_s"] for name in peers)
                for one in cell["rounds"]
            ]
            cell["ratio"] = round(statistics.median(ratios), 2)
        place = cell["observations"], cell["num_envs"]
        last = before.get(str(place))
        if last is not None:
            slower = last["steps_per_s"]["muster"] / cell["steps_per_s"]["muster"]
            cell["explained"] = round(products(cell) / products(last), 2)
            cell["step"] = round(slower / max(1.0, cell["explained"]), 2)
        before[str(place)] = cell


def main() -> None:
    """Time all shapes, print the table, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venvs", type=Path, required=True, help="folder of virtual environments")
    parser.add_argument("--cores", type=int, default=1, choices=(1, 2), help="for each (1)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds to take the median over (1)")
    parser.add_argument("--seconds", type=float, default=3, help="of each timing, at least (3)")
    parser.add_argument("--envs", type=int, nargs="+", default=ENVS, help="environments (8 64)")
    parser.add_argument("--observations", type=int, nargs="+", default=SIZES, help="(4 17 376)")
    parser.add_argument("--only", nargs="+", help="libraries to run, and no others")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    found, skipped = pythons(options.venvs, PEERS)
    if options.only:
        found = {name: python for name, python in found.items() if name in options.only}
    libraries = [
        Library(name, python, options.cores, options.seconds) for name, python in found.items()
    ]
    shapes = [
        {"hidden": list(hidden), "observations": size, "num_envs": envs}
        for envs in options.envs
        for size in options.observations
        for hidden in HIDDEN
    ]
    cells = timed(shapes, libraries, options.rounds)
    for library in libraries:
        library.end()
    summed_up(cells)
    ratios = [cell["ratio"] for cell in cells if "ratio" in cell]
    steps = [cell["step"] for cell in cells if "step" in cell]
    result = {
        "command": "python -m benchmarks.shapes " + " ".join(sys.argv[1:]),
        **taking.machine(),
        "skipped": skipped,
        "lowest_ratio": {"found": min(ratios, default=None), "at_least": LEAST},
        "median_ratio": {
            "found": round(statistics.median(ratios), 2) if ratios else None,
            "at_least": MEDIAN,
        },
        "steepest_step": {"found": max(steps, default=None), "at_most": STEEPEST},
        "cells": cells,
    }
    taking.write(result, options.json)
    if ratios and (min(ratios) < LEAST or statistics.median(ratios) < MEDIAN):
        raise SystemExit("missed: a ratio is too low")
    if steps and max(steps) > STEEPEST:
        raise SystemExit("missed: a step is too steep")


if __name__ == "__main__":
    main()
