"""How well a study uses two cores: its wall time, over half of its trials' own CPU time.

    python benchmarks/tune_cores.py --json benchmarks/results/tune_cores.json

Eight trials of PPO, two at a time. The aim is at most 1.15, on a machine that does nothing else.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import muster

GRID = {"lr": [0.01, 0.003, 0.001, 0.0003], "gamma": [0.9, 0.99]}
JOBS = 2


def measure(env_steps: int) -> dict[str, float]:
    """Run the study once, and return its seconds."""
    before, began = _cpu_seconds(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "study")
        muster.tune(
            "ppo", "CartPole-v1", grid=GRID, confirm=0, jobs=JOBS, out=out, env_steps=env_steps
        )
    wall, cpu = time.monotonic() - began, _cpu_seconds() - before
    return {"wall_s": wall, "cpu_s": cpu, "ratio": wall * JOBS / cpu}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.env_steps)
    print(f"{found['wall_s']:.1f} s for {found['cpu_s']:.1f} s of CPU time: {found['ratio']:.2f}")
    if options.json is not None:
        options.json.write_text(f"{json.dumps(found, indent=2)}\n")


if __name__ == "__main__":
    main()
