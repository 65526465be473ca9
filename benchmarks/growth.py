"""How PPO's speed and memory grow with environments and with workers: is there a cliff anywhere?

    python -m benchmarks.growth --json benchmarks/results/growth.json

`muster train ppo` on CartPole-v1, 64x64, for some seconds in a process of its own at each point:
steps per second as `result.json` has them, and the memory of all its processes at its highest.
A point is a cliff if it has less than two thirds of the steps per second of the point before it:
more environments cost nothing but memory, and more workers than cores only their exchange.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import rounds as taking
from benchmarks.peers.running import say

ENVS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
WORKERS = (0, 1, 2, 4, 8)
ROLLOUT = 128
LEAST = 2 / 3


def train(num_envs: int, workers: int, slots: int, seconds: float) -> dict[str, Any]:
    """Train for some seconds, and return what it did."""
    options = {
        "--num-envs": num_envs,
        "--workers": workers,
        "--slots": slots,
        "--seconds": seconds,
        "--env-steps": 10**12,
        "--rollout": ROLLOUT,
        "--eval-every": 0,
        "--eval-episodes": 1,
        "--checkpoint-every": 0,
        "--stop-at": 10**6,
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        words = [str(word) for pair in options.items() for word in pair]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "muster",
                "train",
                "ppo",
                "CartPole-v1",
                "--quiet",
                "--run-dir",
                str(place),
                *words,
            ],
            stdout=subprocess.DEVNULL,
        )
        highest = 0
        while process.poll() is None:
            highest = max(highest, _memory(process.pid))
            time.sleep(0.1)
        if process.returncode:
            raise SystemExit(f"{num_envs} environments, {workers} workers: {process.returncode}")
        result = json.loads((place / "result.json").read_text())
    return {
        "num_envs": num_envs,
        "workers": workers,
        "steps_per_s": round(result["speed"]["steps_per_s"]),
        "memory_mb": round(highest / 2**20),
        "busy_elsewhere": round(result["speed"]["busy_elsewhere"], 3),
    }


def _memory(pid: int) -> int:
    """Return the bytes that a process and all below it have for themselves."""
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            todo += map(int, children)
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended
            continue
    return total


def main() -> None:
    """Take every point, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6, help="of each point (6)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    by_envs = [train(envs, min(cores, 4), 4, options.seconds) for envs in _told(ENVS)]
    by_workers = [train(64, workers, 8, options.seconds) for workers in _told(WORKERS)]
    rows = [(a, b) for points in (by_envs, by_workers) for a, b in itertools.pairwise(points)]
    cliffs = [b for a, b in rows if b["steps_per_s"] < LEAST * a["steps_per_s"]]
    first, last = by_envs[0], by_envs[-1]
    more = (last["memory_mb"] - first["memory_mb"]) * 1024 / (last["num_envs"] - first["num_envs"])
    result = {
        "command": "python -m benchmarks.growth " + " ".join(sys.argv[1:]),
        **taking.machine(),
        "by_envs": by_envs,
        "by_workers": by_workers,
        "memory_kb_of_an_env": round(more, 1),
        "cliffs": cliffs,
    }
    taking.write(result, options.json)
    if cliffs:
        raise SystemExit(f"missed: {len(cliffs)} cliffs")


def _told(numbers: tuple[int, ...]) -> Any:
    for number in numbers:
        say(f"{number} ...")
        yield number


if __name__ == "__main__":
    main()
