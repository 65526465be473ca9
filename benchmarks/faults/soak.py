"""What is left behind by many runs, and what grows in a long one: nothing, and nothing.

    python -m benchmarks.faults.soak cycles --runs 300     short runs, one after the other, here
    python -m benchmarks.faults.soak long --seconds 1800   one run of DQN on four nodes, watched

Counted: open files, threads, child processes, names in shared memory, files in the folder for
temporary ones, and resident memory. Of cycles, what there is after the first ten is compared with
what there is at the end; of a long run, the first third with the last.
"""

import argparse
import gc
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.faults.children import end_with_harness

import muster

WARM_UP = 10
GROWTH = 1.05
"""Resident memory may be so many times what it was; 3 MB in any case."""
_SLACK = 3 << 20
SHORT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ppo", {"workers": 0, "env_steps": 1_024}),
    ("ppo", {"workers": 2, "env_steps": 1_024}),
    ("dqn", {"workers": 0, "env_steps": 512}),
    ("dqn", {"workers": 3, "env_steps": 512, "learning_starts": 64, "train_every": 64}),
)


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: list[int] = []
    todo = [pid]
    while todo:
        mine = [each for each, parent in parents.items() if parent in todo]
        found += mine
        todo = mine
    return found


def resident(pid: int) -> int:
    """Return the bytes of memory that a process alone has; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def count(pid: int, what: str) -> int:
    """Return how many entries a process has in a folder of /proc."""
    try:
        return len(os.listdir(f"/proc/{pid}/{what}"))
    except OSError:
        return 0


def here() -> dict[str, Any]:
    """Return what this process, and who it has started, use now."""
    gc.collect()
    return {
        "files": count(os.getpid(), "fd"),
        "threads": threading.active_count(),
        "processes": len(children(os.getpid())),
        "shared_memory": sorted(os.listdir("/dev/shm")),
        "temporary": sorted(
            each.name for each in Path(tempfile.gettempdir()).glob(f"muster-{os.getpid()}-*")
        ),
        "resident": resident(os.getpid()),
    }


def cycles(runs: int) -> dict[str, Any]:
    """Train so often in this process, and compare."""
    before: dict[str, Any] = {}
    resident_after: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs):
            if number == WARM_UP:
                before = here()
            algo, options = SHORT[number % len(SHORT)]
            place = Path(folder) / str(number)
            muster.train(
                algo,
                "CartPole-v1",
                run_dir=str(place),
                quiet=True,
                seed=number,
                eval_episodes=1,
                stop_at=None,
                **options,
            )
            shutil.rmtree(place)
            resident_after.append(resident(os.getpid()))
            if number % 20 == 0:
                print(f"{number}: {resident_after[-1] >> 20} MB", file=sys.stderr, flush=True)
    after = here()
    wrong = [name for name in before if name != "resident" and before[name] != after[name]]
    third = len(resident_after) // 3
    early = statistics.median(resident_after[WARM_UP : max(third, WARM_UP + 1)])
    late = statistics.median(resident_after[-third:])
    if late > max(GROWTH * early, early + _SLACK):
        wrong.append("resident")
    return {
        "runs": runs,
        "before": before,
        "after": after,
        "resident_median_first_third": early,
        "resident_median_last_third": late,
        "violations": wrong,
    }


def long(seconds: float, every: float = 15.0) -> dict[str, Any]:
    """Watch one run, and compare its beginning with its end."""
    shared = sorted(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "dqn", "CartPole-v1", "--workers", "4", "--seconds", str(seconds)]
        words += ["--env-steps", str(10**9), "--stop-at", "501", "--eval-every", "20000", "--quiet"]
        words += ["--run-dir", f"{folder}/run", "--eval-episodes", "10"]
        run = subprocess.Popen(
            [sys.executable, "-m", "muster", *words], preexec_fn=end_with_harness
        )
        seen: list[dict[str, Any]] = []
        while run.poll() is None:
            try:
                run.wait(every)
            except subprocess.TimeoutExpired:
                everybody = [run.pid, *children(run.pid)]
                seen.append(
                    {
                        "resident": sum(map(resident, everybody)),
                        "files": sum(count(pid, "fd") for pid in everybody),
                        "threads": sum(count(pid, "task") for pid in everybody),
                        "processes": len(everybody),
                    }
                )
        result = json.loads((Path(folder) / "run" / "result.json").read_text())
    # Replay fills at first: 100,000 transitions.
    rest = seen[len(seen) // 4 :]
    third = max(1, len(rest) // 3)
    early, late = (
        {name: statistics.median(each[name] for each in part) for name in rest[0]}
        for part in (rest[:third], rest[-third:])
    )
    wrong = [name for name in ("files", "threads", "processes") if late[name] > early[name]]
    if late["resident"] > max(GROWTH * early["resident"], early["resident"] + _SLACK):
        wrong.append("resident")
    if sorted(os.listdir("/dev/shm")) != shared:
        wrong.append("shared_memory")
    return {
        "seconds": seconds,
        "code": run.returncode,
        "env_steps": result["env_steps"],
        "stopped_by": result["stopped_by"],
        "replacements": result["replacements"],
        "samples": len(seen),
        "early": early,
        "late": late,
        "violations": wrong,
    }


def main() -> None:
    """Run one of the two, print what came of it, and write it."""
    parser = argparse.ArgumentParser(description="See whether anything is left, or grows.")
    parser.add_argument("what", choices=["cycles", "long"])
    parser.add_argument("--runs", type=int, default=300, help="short runs (300)")
    parser.add_argument("--seconds", type=float, default=1800.0, help="of the long run (1800)")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    found = cycles(options.runs) if options.what == "cycles" else long(options.seconds)
    found |= {"muster": muster.__version__, "python": platform.python_version()}
    known = {}
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text())
    text = json.dumps({**known, options.what: found}, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    raise SystemExit(1 if found["violations"] else 0)


if __name__ == "__main__":
    main()
