"""DQN to a return that counts as solved, over several seeds: how many reach it, and how fast.

    python benchmarks/dqn_learning.py --seeds 5 --json benchmarks/results/dqn_cartpole.json

Each seed is one `muster train dqn ENV` in a process of its own, with the preset's options. Solved
means that the mean of 100 greedy episodes, from seeds of their own, reaches the preset's `stop_at`.
Exit code 1 if a seed fails.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from muster.recipes.presets import preset


def train_one(env: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train with one seed and return its result."""
    place = folder / str(seed)
    command = [sys.executable, "-m", "muster.cli.main", "train", "dqn", env]
    started = time.monotonic()
    subprocess.run(
        [*command, "--seed", str(seed), "--run-dir", str(place), "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=1800,
    )
    result = json.loads((place / "result.json").read_text())
    names = ("seed", "env_steps", "train_iter", "seconds", "eval_return_mean", "eval_return_std")
    shown = {
        name: result[name] for name in (*names, "eval_episodes", "policy_sha256", "stopped_by")
    }
    return {**shown, "process_seconds": round(time.monotonic() - started, 2)}


def main() -> None:
    """Train with every seed, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Train DQN with several seeds until it is solved.")
    parser.add_argument(
        "--env", default="CartPole-v1", help="environment with a preset (CartPole-v1)"
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1 (5)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for seed in range(options.seeds):
            runs.append(train_one(options.env, seed, Path(folder)))
            print(f"seed {seed}: {runs[-1]}", file=sys.stderr)
    solved = sum(run["stopped_by"] == "target" for run in runs)
    result = {
        "command": f"python benchmarks/dqn_learning.py --env {options.env} --seeds {options.seeds}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_at_end": os.getloadavg()[0],
        "preset": preset("dqn", options.env),
        "solved": f"{solved} of {options.seeds}",
        "slowest_seconds": max(run["seconds"] for run in runs),
        "runs": runs,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if solved < options.seeds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
