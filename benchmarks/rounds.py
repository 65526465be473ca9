"""Rounds: every figure taken once in each, so that all see the same machine; medians of them."""

import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Round = Mapping[str, float]


def take_rounds(
    one_round: Callable[[], Round], rounds: int, say: Callable[[str], object]
) -> tuple[dict[str, dict[str, float]], float]:
    """Return the median and quartiles of every figure, and the share of a CPU that was had."""
    taken: list[Round] = []
    started, used = time.monotonic(), _cpu_seconds()
    for number in range(rounds):
        taken.append(one_round())
        say(f"round {number + 1} of {rounds}: {_short(taken[-1])}")
    share = (_cpu_seconds() - used) / (time.monotonic() - started)
    return {name: summary([each[name] for each in taken]) for name in taken[0]}, round(share, 2)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and all values."""
    if len(values) < 2:
        return {"median": values[0], "q1": values[0], "q3": values[0]}
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": _round(median), "q1": _round(low), "q3": _round(high)}


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),  # fewer under taskset
        "load_before": round(os.getloadavg()[0], 2),
    }


def write(result: Mapping[str, Any], file: Path | None) -> None:
    """Print a result as JSON, and write it where it was asked for."""
    text = json.dumps(result, indent=2)
    print(text)
    if file is not None:
        file.write_text(text + "\n")


def _cpu_seconds() -> float:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, both))


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _short(figures: Round) -> str:
    return "  ".join(f"{name} {_round(value)}" for name, value in figures.items())
