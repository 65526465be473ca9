"""One trial of IMPALA on CartPole-v1 with one library, as one line of JSON. Run by `impala.py`.

    PYTHON -m benchmarks.peers.impala_one sf --envs 64 --seconds 10

PYTHON is that of the library's virtual environment, and the folder that of the repository.
"""

import argparse
import importlib
import json
import os
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from benchmarks.peers.trial import MATCHED, Finished, Speed

UNROLL = 32
MODULES = {
    "muster": ("muster-rl", "muster"),
    "rllib": ("ray", "rllib_impala"),
    "sf": ("sample-factory", "sf"),
}


def main() -> None:
    """Run the trial that the arguments name."""
    parser = argparse.ArgumentParser(description="One trial of IMPALA on CartPole-v1.")
    parser.add_argument("library", choices=MODULES)
    parser.add_argument("--envs", type=int, required=True, help="environments in all")
    parser.add_argument("--workers", type=int, default=0, help="processes, or runners of RLlib")
    parser.add_argument("--seconds", type=float, default=10.0, help="at least as long (10)")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    recipe = replace(
        MATCHED,
        num_envs=options.envs,
        rollout=UNROLL,
        epochs=1,
        minibatch=UNROLL * options.envs,
    )
    trial = Speed(recipe, 1, 1, seconds=options.seconds)
    package, module = MODULES[options.library]
    library = importlib.import_module(f"benchmarks.peers.libraries.{module}")
    print(json.dumps({**_run(library, trial, options), package: version(package)}), flush=True)


def _run(library: Any, trial: Speed, options: argparse.Namespace) -> dict[str, Any]:
    if options.library == "muster":
        actors = max(1, options.workers - 2)
        told = {
            "workers": options.workers,
            "num_envs": options.envs // actors,
            "unroll": UNROLL,
            "batch_unrolls": actors,
            "lr": trial.recipe.lr,
            "entropy_coef": trial.recipe.entropy_coef,
            "hidden": trial.recipe.hidden,
            "seed": 1,
            "checkpoint_every": 0,
            "quiet": True,
        }
        found: dict[str, Any] = library.speed("CartPole-v1", told, trial.seconds, algo="impala")
        return found
    try:
        library.run(trial, *([options.workers] if options.workers else []))
    except Finished:
        return trial.result()
    raise SystemExit(f"{options.library} ended before the trial did")


if __name__ == "__main__":
    main()
