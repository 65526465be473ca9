"""One trial of PPO on CartPole-v1 with one library, printed as one line of JSON. Run by `ppo.py`.

    PYTHON -m benchmarks.peers.ppo_one sb3 matched --threads 2 --seconds 10
    PYTHON -m benchmarks.peers.ppo_one sb3 solve --seed 1
    PYTHON -m benchmarks.peers.ppo_one muster matched --workers 2 --engine ray

PYTHON is that of the library's virtual environment, and the folder that of the repository.
`matched` and `wide` give the steps per second, end to end: collecting and learning, no evaluation.
The clock starts after the first updates (compilation and caches). `solve` gives the seconds from
the start of the process until CartPole is solved (`trial.py` says what that is).
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.peers.trial import RECIPES, Finished, Solve, Speed, Trial

PACKAGES: dict[str, tuple[str, ...]] = {
    "muster": ("muster-rl", "torch", "gymnasium"),
    "sb3": ("stable-baselines3", "torch", "gymnasium"),
    "sbx": ("sbx-rl", "jax", "gymnasium"),
    "skrl": ("skrl", "torch", "gymnasium"),
    "tianshou": ("tianshou", "torch", "gymnasium"),
    "rllib": ("ray", "torch", "gymnasium"),
    "sf": ("sample-factory", "torch", "gymnasium"),
}


def main() -> None:
    """Run the trial that the arguments name."""
    parser = argparse.ArgumentParser(description="One trial of PPO on CartPole-v1.")
    parser.add_argument("library", choices=PACKAGES)
    parser.add_argument("setting", choices=RECIPES)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    parser.add_argument(
        "--workers", type=int, default=0, help="processes of muster, or runners of RLlib (0)"
    )
    parser.add_argument("--engine", default="local", help="of muster: local or ray (local)")
    parser.add_argument("--seconds", type=float, default=10.0, help="at least as long (10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=300_000, help="most steps to solve (300000)")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    recipe = RECIPES[options.setting]
    trial: Trial
    if options.setting == "solve":
        trial = Solve(recipe, options.seed, options.threads, limit=options.limit)
    else:
        trial = Speed(recipe, options.seed, options.threads, seconds=options.seconds)
    result = _run(options.library, options.workers, options.engine, trial)
    packages = PACKAGES[options.library]
    if options.engine == "ray":
        packages = (*packages, "ray")
    versions = {package: version(package) for package in packages}
    print(json.dumps({**result, "versions": versions}))
    sys.stdout.flush()


def _run(library: str, workers: int, engine: str, trial: Trial) -> dict[str, Any]:
    module = importlib.import_module(f"benchmarks.peers.libraries.{library}")
    if library == "muster":
        result: dict[str, Any] = module.run(trial, workers, engine)
        return result
    run: Callable[..., None] = module.run
    try:
        if library == "rllib":
            run(trial, workers)
        else:
            run(trial)
    except Finished:
        return trial.result()
    raise SystemExit(f"{library} ended before the trial did")


if __name__ == "__main__":
    main()
