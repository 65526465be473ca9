"""muster on Ray beside RLlib, beside its own local engine, and beside bare Ray; replay in shards.

    python -m benchmarks.ray --venvs DIR --rounds 3 --json benchmarks/results/ray.json
    python -m benchmarks.ray --venvs DIR --only weights,replay --seconds 5

DIR holds the virtual environment `rllib`: torch==2.13.0 installed first, then ray[rllib]==2.60.0.
Every round runs every lane once, each in a process and on a Ray cluster of its own; ratios are
taken within a round, and their median over the rounds is reported.

    ppo       steps/s of PPO on CartPole-v1 (`peers/trial.py`), 2 CPUs: muster's two workers on the
              Ray engine, and the fastest of RLlib's ways
    overhead  the same job of muster on the local engine: seconds of training per step, as
              `result.json` has them. What starting takes is said apart (`start_s`)
    weights   10 MB until four readers have them in hand (`weights.py`)
    replay    prioritized, in 1, 2 and 4 shards (`replay.py`); no bound
    traffic   calls and bytes per update of PPO between two machines (`traffic.py`), in the first
              round; no bound

Progress is on stderr, a table on stdout. Exit code 1 if a bound is missed or a lane has failed.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import rounds as taking
from benchmarks.peers.running import Lane, Timed, arguments, pythons, run_one, say
from benchmarks.ray.table import table

PARTS = ("ppo", "overhead", "weights", "replay", "traffic")
TIMEOUT = 300.0
"""Seconds of a lane, beside those of its timings."""

ON_RAY, LOCAL = "muster ray, 2 workers", "muster local, 2 workers"
RLLIB = {
    f"rllib, {where}, {threads} thread{'s' * (threads > 1)}": (runners, threads)
    for where, runners in (("in process", 0), ("2 runners", 2))
    for threads in (1, 2)
}
RLLIB_BOUND, OVERHEAD_BOUND, WEIGHTS_BOUND = 5.0, 1.25, 1.5

Round = dict[str, Timed]


def main() -> None:
    """Run all, print a table, and write JSON where it was asked for."""
    parser = arguments("muster on Ray beside RLlib, its local engine and bare Ray.")
    parser.add_argument("--seconds", type=float, default=10, help="of each timing of PPO (10)")
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"some of {','.join(PARTS)}")
    options = parser.parse_args()
    found, skipped = pythons(options.venvs, ["rllib"] if "ppo" in options.only else [])
    machine = {**taking.machine(), "machine": platform.platform()}
    rounds: list[Round] = []
    failed: dict[str, str] = {}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        lanes = _lanes(options.only, found, options.seconds, number + 1)
        rounds.append(_one_round(lanes, TIMEOUT + 10 * options.seconds, failed))
    ratios = _ratios(rounds)
    result = {
        "command": f"python -m benchmarks.ray --venvs DIR --rounds {options.rounds} "
        f"--seconds {options.seconds:g} --only {','.join(options.only)}",
        **machine,
        "versions": {name: version(name) for name in ("muster-rl", "ray", "torch", "numpy")},
        "skipped": skipped,
        "failed": failed,
        "ratios": ratios,
        "figures": _medians(rounds),
        "rounds": rounds,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(table(result))
    missed = [name for name, ratio in ratios.items() if not ratio["met"]]
    if missed or failed:
        raise SystemExit(
            f"missed: {'; '.join(missed) or 'none'}; failed: {', '.join(failed) or 'none'}"
        )


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{unknown}: it is one of {', '.join(PARTS)}")
    return chosen


def _lanes(
    only: Sequence[str], found: dict[str, str], seconds: float, seed: int
) -> dict[str, Lane]:
    """Return the commands of a round, by name."""
    lanes: dict[str, Lane] = {}

    def ppo(python: str, library: str, *more: str) -> Lane:
        told = ("matched", "--seconds", str(seconds), "--seed", str(seed), *more)
        return (python, "-m", "benchmarks.peers.ppo_one", library, *told)

    def here(module: str, *more: str) -> Lane:
        return (sys.executable, "-m", f"benchmarks.ray.{module}", *more)

    if "ppo" in only or "overhead" in only:
        lanes[ON_RAY] = ppo(sys.executable, "muster", "--workers", "2", "--engine", "ray")
    if "overhead" in only:
        lanes[LOCAL] = ppo(sys.executable, "muster", "--workers", "2")
    if "ppo" in only and "rllib" in found:
        for name, (runners, threads) in RLLIB.items():
            more = ("--workers", str(runners), "--threads", str(threads))
            lanes[name] = ppo(found["rllib"], "rllib", *more)
    if "weights" in only:
        lanes["weights"] = here("weights", "--count", str(max(3, round(4 * seconds))))
    if "replay" in only:
        for kind in ("cartpole", "atari"):
            lanes[f"replay {kind}"] = here("replay", kind, "--seconds", str(seconds / 3))
    if "traffic" in only and seed == 1:  # what is counted is the same in all rounds
        lanes["traffic"] = here("traffic", "--seconds", str(seconds))
    return lanes


def _one_round(lanes: dict[str, Lane], timeout: float, failed: dict[str, str]) -> Round:
    """Run every lane once; one that fails is left out and noted."""
    timed: Round = {}
    for name, command in lanes.items():
        started, busy = time.monotonic(), _busy_seconds()
        try:
            timed[name] = run_one(command, timeout)
        except (SystemExit, subprocess.TimeoutExpired) as error:
            failed[name] = str(error)
            say(f"{name}: failed; {shlex.join(command)}\n{error}")
            continue
        took = time.monotonic() - started
        timed[name]["lane_s"] = round(took, 1)
        timed[name]["busy_cores"] = round((_busy_seconds() - busy) / took, 2)
        say(f"{name}: {_short(timed[name])}")
    return timed


def _ratios(rounds: list[Round]) -> dict[str, dict[str, Any]]:
    """Return every ratio that can be taken, with its bound and whether it is met."""

    def rllib(each: Round) -> float:
        return max(float(each[name]["steps_per_s"]) for name in RLLIB if name in each)

    def speed(each: Round, name: str, figure: str) -> float:
        return float(each[name][figure])

    def took(each: Round, way: str) -> float:
        return float(each["weights"]["milliseconds"][way]["in hand"])

    wanted: dict[str, tuple[Callable[[Round], float], dict[str, float]]] = {
        "PPO: muster ray / best of RLlib, steps/s": (
            lambda each: speed(each, ON_RAY, "steps_per_s") / rllib(each),
            {"at_least": RLLIB_BOUND},
        ),
        "PPO: ray / local, training s per step": (
            lambda each: (
                speed(each, LOCAL, "train_steps_per_s") / speed(each, ON_RAY, "train_steps_per_s")
            ),
            {"at_most": OVERHEAD_BOUND},
        ),
        "10 MB: nodes / bare Ray, ms": (
            lambda each: took(each, "nodes") / took(each, "bare"),
            {"at_most": WEIGHTS_BOUND},
        ),
        "10 MB: actors.ParameterServer / bare Ray, ms": (
            lambda each: took(each, "blocks") / took(each, "bare"),
            {"at_most": WEIGHTS_BOUND},
        ),
    }
    ratios: dict[str, dict[str, Any]] = {}
    for name, (ratio, bound) in wanted.items():
        values = []
        for each in rounds:
            try:
                values.append(ratio(each))
            except (KeyError, ValueError):  # one of its lanes was not wanted, or has failed
                continue
        if values:
            ratios[name] = _bounded(values, **bound)
    return ratios


def _bounded(
    values: Sequence[float], at_least: float = 0.0, at_most: float = float("inf")
) -> dict[str, Any]:
    median = statistics.median(values)
    bound = {"at_least": at_least} if at_least else {"at_most": at_most}
    return {
        "median": round(median, 3),
        "rounds": [round(each, 3) for each in values],
        **bound,
        "met": at_least <= median <= at_most,
    }


def _medians(rounds: list[Round]) -> dict[str, dict[str, dict[str, float]]]:
    """Return median and quartiles of every number that a lane has printed."""
    taken: dict[str, dict[str, list[float]]] = {}
    for each in rounds:
        for lane, timed in each.items():
            for name, value in _flat(timed).items():
                taken.setdefault(lane, {}).setdefault(name, []).append(value)
    return {
        lane: {name: taking.summary(values) for name, values in figures.items()}
        for lane, figures in taken.items()
    }


def _flat(tree: dict[str, Any], before: str = "") -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            numbers |= _flat(value, f"{before}{name}: ")
        elif isinstance(value, int | float):
            numbers[f"{before}{name}"] = float(value)
    return numbers


def _short(timed: Timed) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in _flat(timed).items())[:400]


def _busy_seconds() -> float:
    """Return the seconds that all cores of the machine have worked, for whomever."""
    user, nice, system, _, _, interrupts, soft = map(
        int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
    )
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
