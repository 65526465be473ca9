"""Every known way to hurt a run of many processes, tried on `Parallel.runner` at full size.

    python -m benchmarks.faults.node_faults --json benchmarks/results/node_faults.json
    python -m benchmarks.faults.node_faults --kind A1 A9 --trials 5

Run it from the repository; it needs Linux. The names are those of the fault catalogue. Each trial
runs a program of a learner, an evaluator and actors (node_program.py) as a process of its own; a
fault comes at a seeded moment and is proved to have landed; what is not done in time has failed.
After each trial no process, socket, directory, shared memory or open file may be left. One trial
more in six is without a fault. With --json, kinds that are in the file and not asked for are
kept. Exit code 1 if anything was violated.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.faults import (
    node_deaths,
    node_hangs,
    node_misuse,
    node_proofs,
    node_sockets,
    node_stops,
)
from benchmarks.faults.node_report import Report
from benchmarks.faults.node_scene import ROOT, SOURCE, Broken

KINDS: dict[str, Callable[[int, bool], dict[str, Any]]] = {
    **node_deaths.KINDS,
    **node_hangs.KINDS,
    **node_stops.KINDS,
    **node_misuse.KINDS,
    **node_sockets.KINDS,
    **node_proofs.KINDS,
}
ONCE = {"B7", "CYCLES"} | node_sockets.ONCE
"""One trial holds all of their faults."""


def attempt(kind: str, trials: int, lines: Path | None) -> dict[str, Any]:
    """Try one kind, with and without the fault."""
    run = KINDS[kind]
    report = Report(kind, (run.__doc__ or "").strip().split("\n")[0], lines)
    plan = [(seed, True) for seed in range(1 if kind in ONCE else trials)]
    plan += [(seed, False) for seed in range(max(1, len(plan) // 6))]
    for seed, faulty in plan:
        try:
            got = run(seed, faulty)
        except Broken as error:
            got = {"broken": str(error)}
        except Exception as error:  # whatever it is, the trial did not pass
            got = {"broken": repr(error)}
        report.add(seed, got, faulty)
    return report.summary()


def main() -> None:
    """Try everything, print the summary, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Try every known fault on runs of many nodes.")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), help="only these")
    parser.add_argument("--trials", type=int, default=30, help="trials of each kind (30)")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    parser.add_argument("--lines", type=Path, help="add one JSON line per trial to this file")
    options = parser.parse_args()
    faults: dict[str, Any] = {}
    if options.json and options.json.exists():
        faults = json.loads(options.json.read_text())["faults"]
    violations = 0
    for kind in options.kind or list(KINDS):
        faults[kind] = attempt(kind, options.trials, options.lines)
        violations += faults[kind]["violations"]
        faults[kind]["commit"] = commit()
        told = {name: value for name, value in faults[kind].items() if name != "what"}
        print(f"{kind}: {json.dumps(told)[:1500]}", file=sys.stderr, flush=True)
        if options.json:
            write(options.json, faults)
    raise SystemExit(1 if violations else 0)


def commit() -> str:
    """Return which commit is tried."""
    known = Path(SOURCE, "commit")  # of a copy
    if known.exists():
        return known.read_text().strip()
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def write(path: Path, faults: dict[str, Any]) -> None:
    """Write the summary of all kinds that were tried so far."""
    version = subprocess.run(
        [sys.executable, "-c", "import muster; print(muster.__version__)"],
        env=os.environ | {"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    order = [kind for kind in KINDS if kind in faults]
    summary = {
        "command": "python -m benchmarks.faults.node_faults",
        "muster": version.stdout.strip(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "totals": {
            "kinds": len(order),
            "faults": sum(faults[kind]["n"] for kind in order),
            "landed": sum(faults[kind]["landed"] for kind in order),
            "violations": sum(faults[kind]["violations"] for kind in order),
        },
        "faults": {kind: faults[kind] for kind in order},
        # Runs that others took the place of, and why: written by hand, kept here.
        "earlier_runs": json.loads(path.read_text()).get("earlier_runs", [])
        if path.exists()
        else [],
    }
    aside = path.with_name(f".{path.name}")
    aside.write_text(json.dumps(summary, indent=2, default=str) + "\n")
    aside.replace(path)


if __name__ == "__main__":
    main()
