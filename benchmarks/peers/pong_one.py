"""One trial of PPO on Atari Pong with one library, printed as one line of JSON. Run by `pong.py`.

    PYTHON -m benchmarks.peers.pong_one sb3 --seconds 30
    PYTHON -m benchmarks.peers.pong_one cleanrl --script ppo_atari_envpool.py

PYTHON is that of the library's virtual environment, and the folder that of the repository. Gives
the agent's steps per second, of 4 frames each, end to end. The clock starts after the first update.
`sb3` steps its environments in its own process, `sb3-subproc` each in one of its own.
"""

import argparse
import hashlib
import importlib
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.trial import PONG, Finished, Speed

PACKAGES = {
    "muster": ("muster-rl", "torch", "envpool"),
    "sb3": ("stable-baselines3", "torch", "ale-py"),
    "sb3-subproc": ("stable-baselines3", "torch", "ale-py"),
    "cleanrl": ("torch", "envpool", "gym"),
}


def main() -> None:
    """Run the trial that the arguments name."""
    parser = argparse.ArgumentParser(description="One trial of PPO on Pong.")
    parser.add_argument("library", choices=PACKAGES)
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (2)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of muster (2)")
    parser.add_argument("--seconds", type=float, default=30.0, help="at least as long (30)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--script", type=Path, help="CleanRL's ppo_atari_envpool.py")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    trial = Speed(PONG, options.seed, options.threads, options.seconds, warm_updates=1)
    versions = {package: version(package) for package in PACKAGES[options.library]}
    if options.script:
        versions["script"] = hashlib.sha256(options.script.read_bytes()).hexdigest()[:12]
    print(json.dumps({**_run(options, trial), "versions": versions}))


def _run(options: argparse.Namespace, trial: Speed) -> dict[str, Any]:
    library, _, variant = options.library.partition("-")
    module = importlib.import_module(f"benchmarks.peers.libraries.{library}")
    if library == "muster":
        result: dict[str, Any] = module.pong(trial, options.workers)
        return result
    try:
        module.pong(trial, options.script if library == "cleanrl" else bool(variant))
    except Finished:
        return trial.result()
    raise SystemExit(f"{library} ended before the trial did")


if __name__ == "__main__":
    main()
