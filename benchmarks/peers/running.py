"""What the comparisons with other libraries share: their programs, rounds, ratios and bounds.

Each library runs in a process of its own, with the Python of its own virtual environment, one after
the other and never two at once. Every round runs every library once, and ratios are taken within a
round, so that both sides of one have seen the same machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import rounds as taking

ROOT = Path(__file__).resolve().parents[2]

Timed = dict[str, Any]
"""What one run printed."""
Lane = Sequence[str]
"""A command that prints one line of JSON last."""


@dataclass(frozen=True)
class Race:
    """What the rounds have given."""

    rounds: list[dict[str, Timed]]
    medians: dict[str, dict[str, float]]
    cpu_share: float


def compared(per_round: Sequence[float], at_least: float | None) -> dict[str, Any]:
    """Return a ratio in each round, its median, and whether that is as large as it must be."""
    median = statistics.median(per_round)
    return {
        "median": round(median, 2),
        "rounds": [round(each, 2) for each in per_round],
        "at_least": at_least,
        "met": at_least is None or median >= at_least,
    }


def arguments(about: str) -> argparse.ArgumentParser:
    """Return the arguments that all comparisons take."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--venvs", type=Path, required=True, help="folder of virtual environments")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take the median over (3)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    return parser


def pythons(venvs: Path, peers: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the Python of muster and of every peer that is installed, and who is skipped."""
    found, skipped = {"muster": sys.executable}, []
    for peer in peers:
        python = venvs.absolute() / peer / "bin" / "python"
        if python.exists():
            found[peer] = str(python)
        else:
            skipped.append(peer)
            say(f"{peer} is skipped: it is not in {venvs}")
    return found, skipped


def race(
    lanes: Callable[[int], Mapping[str, Lane]],
    rounds: int,
    figure: Callable[[Timed], float],
    timeout: float = 600,
) -> Race:
    """Run every lane once in each round.

    Args:
        lanes: From the number of a round, which starts at 0, to the command of each lane.
        rounds: Number of rounds.
        figure: What of a result is said, and summed up by its median.
        timeout: Seconds that one run may take.
    """
    taken: list[dict[str, Timed]] = []

    def one_round() -> taking.Round:
        timed: dict[str, Timed] = {}
        for name, command in lanes(len(taken)).items():
            timed[name] = run_one(command, timeout)
            say(f"{name}: {figure(timed[name]):.4g}")
        taken.append(timed)
        return {name: figure(each) for name, each in timed.items()}

    medians, share = taking.take_rounds(one_round, rounds, say)
    return Race(taken, medians, share)


def run_one(command: Lane, timeout: float) -> Timed:
    """Run one command, and return what it printed last."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2_000:]}")
    timed: Timed = json.loads(done.stdout.splitlines()[-1])
    return timed


def finish(
    result: Mapping[str, Any], ratios: Mapping[str, Mapping[str, Any]], file: Path | None
) -> None:
    """Print and write a result, and exit with 1 if a bound is missed."""
    taking.write(result, file)
    missed = [name for name, ratio in ratios.items() if not ratio["met"]]
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


def say(text: str) -> None:
    """Tell how it goes, apart from the result."""
    print(text, file=sys.stderr, flush=True)
