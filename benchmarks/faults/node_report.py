"""What came of the trials of one kind, in figures."""

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any


def percentiles(values: list[float]) -> dict[str, float]:
    """Return the middle and the greatest."""
    ordered = sorted(values)
    return {"p50": round(ordered[len(ordered) // 2], 4), "max": round(ordered[-1], 4)}


class Report:
    """What came of the trials of one kind."""

    def __init__(self, kind: str, what: str, lines: Path | None) -> None:
        self.kind, self.what, self._lines = kind, what, lines
        self.n = self.landed = self.control = 0
        self.violations: list[dict[str, Any]] = []
        self.times: dict[str, list[float]] = defaultdict(list)
        self.sums: dict[str, int] = defaultdict(int)
        self.figures: dict[str, Any] = {}
        self.started = time.monotonic()

    def add(self, seed: int, got: dict[str, Any], faulty: bool) -> None:
        """Take the outcome of one trial: t_* are times, numbers are summed, `landed` is proof."""
        if self._lines is not None:
            line = {"kind": self.kind, "seed": seed, "fault": faulty, "got": got}
            with open(self._lines, "a") as file:
                file.write(json.dumps(line, default=str) + "\n")
        self.count(seed, dict(got), faulty)

    def count(self, seed: int, got: dict[str, Any], faulty: bool) -> None:
        """Take the outcome of one trial that has its line already."""
        if faulty:
            count = int(got.pop("n", 1))
            self.n += count
            self.landed += int(got.pop("landed", 0))
        else:
            self.control += int(got.pop("n", 1))
            got.pop("landed", None)
        broken = got.pop("broken", None)
        if broken is not None:
            self.violations.append({"seed": seed, "fault": faulty, "broken": broken})
        for name, value in got.items():
            if not faulty and name != "items":
                continue
            if name.startswith("t_"):
                self.times[name] += value if isinstance(value, list) else [value]
            elif isinstance(value, int):
                self.sums[name] += value
            else:
                self.figures[name] = value

    def summary(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "what": self.what,
            "n": self.n,
            "landed": self.landed,
            "no_fault_trials": self.control,
            "violations": len(self.violations),
            "zero_bound_95": round(3 / self.n, 5) if self.n else None,
            **{name: percentiles(values) for name, values in sorted(self.times.items()) if values},
            **self.sums,
            **self.figures,
            "examples_of_violations": self.violations[:3],
            "seconds": round(time.monotonic() - self.started, 1),
        }
