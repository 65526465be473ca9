"""Every known way to hurt Ray under a run, tried on `muster train ppo CartPole-v1 --engine ray`.

    python -m benchmarks.faults.ray_faults --json benchmarks/results/ray_faults.json
    python -m benchmarks.faults.ray_faults --kind K4-gcs K8 --trials 2
    python -m benchmarks.faults.ray_faults --kind K7-all --lines FILE --seconds 500   # and again

Run it from the repository, as root, on Linux: several machines are network namespaces
(benchmarks/machines.py). The names are those of the fault catalogue. What has to come of each is in
ray_scene.py. A fault comes at a seeded moment and is proved to have landed; one trial more in six
is without a fault. With --json, results are written after each trial, and kinds that are in the
file and not asked for are kept, so that several may be tried at once. With --lines, trials that
have a line in that file are counted and not repeated, so a long kind may be tried in pieces. Exit
code 1 if anything was violated.
"""

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults import ray_calls, ray_clusters, ray_drains, ray_heads, ray_stores
from benchmarks.faults.node_faults import commit
from benchmarks.faults.node_report import Report
from benchmarks.rounds import machine

KINDS: dict[str, Callable[[int, bool], dict[str, Any]]] = {
    **ray_heads.KINDS,
    **ray_stores.KINDS,
    **ray_calls.KINDS,
    **ray_drains.KINDS,
}


def attempt(
    kind: str,
    trials: int,
    lines: Path | None,
    until: float,
    tell: Callable[[dict[str, Any]], None],
) -> int:
    """Try one kind, with and without the fault, and return how often it went wrong.

    Args:
        kind: Which.
        trials: How many, with the fault.
        lines: Where to add one JSON line per trial, and where earlier ones are; None for nowhere.
        until: When to begin no more trials, by time.monotonic.
        tell: Called with the summary after each trial.
    """
    run = KINDS[kind]
    report = Report(kind, (run.__doc__ or "").strip().split("\n")[0], lines)
    plan = [(seed, True) for seed in range(trials)]
    plan += [(seed, False) for seed in range(max(1, trials // 6))]

    def tell_now() -> None:
        tell({**report.summary(), "asked": trials, "commit": commit()})

    for seed, faulty, got in _done(kind, lines):
        if (seed, faulty) in plan:
            plan.remove((seed, faulty))
            report.count(seed, got, faulty)
            tell_now()
    try:
        for seed, faulty in plan:
            if time.monotonic() > until:
                break
            try:
                got = run(seed, faulty)
            except Exception as error:  # whatever it is, the trial did not pass
                got = {"broken": str(error) or repr(error)}
            print(kind, seed, "fault" if faulty else "calm", got, file=sys.stderr, flush=True)
            report.add(seed, got, faulty)
            tell_now()
    finally:
        ray_clusters.close_all()
    told = {name: value for name, value in report.summary().items() if name != "what"}
    print(f"{kind}: {json.dumps(told, default=str)[:1500]}", file=sys.stderr, flush=True)
    return len(report.violations)


def _done(kind: str, lines: Path | None) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    """Return what a file has of earlier trials: seed, whether with a fault, and what came of it."""
    if lines is not None and lines.exists():
        for line in map(json.loads, lines.read_text().splitlines()):
            if line["kind"] == kind:
                yield line["seed"], line["fault"], line["got"]


def main() -> None:
    """Try everything, and write what came of it where it was asked for."""
    parser = argparse.ArgumentParser(description="Try every known fault of Ray under a run.")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), help="only these")
    parser.add_argument("--trials", type=int, default=20, help="of each kind, with a fault (20)")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--lines", type=Path, help="keep one JSON line per trial in this file")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="after which no trial is begun (no limit)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # machines must not stay behind
    about = machine()
    until = time.monotonic() + options.seconds

    def tell(kind: str, summary: dict[str, Any]) -> None:
        if options.json:
            write(options.json, about, {kind: summary})

    violations = sum(
        attempt(kind, options.trials, options.lines, until, partial(tell, kind))
        for kind in options.kind or list(KINDS)
    )
    sys.exit(1 if violations else 0)


def write(path: Path, about: dict[str, Any], new: dict[str, Any]) -> None:
    """Write summaries of some kinds, beside those of others that are there."""
    faults = {**(json.loads(path.read_text())["faults"] if path.exists() else {}), **new}
    order = [name for name in KINDS if name in faults]
    result = {
        "command": "python -m benchmarks.faults.ray_faults",
        "machine": about,
        "totals": {
            name: sum(faults[each].get(name, 0) for each in order)
            for name in ("n", "landed", "went_on", "ended", "no_fault_trials", "violations")
        },
        "faults": {name: faults[name] for name in order},
    }
    aside = path.with_name(f".{path.name}")
    aside.write_text(json.dumps(result, indent=2, default=str) + "\n")
    aside.replace(path)


if __name__ == "__main__":
    main()
