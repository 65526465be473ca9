"""Trials of PPO at many shapes with one library, in one process. Run by `benchmarks.shapes`.

    echo '{"hidden": [64, 64], "observations": 4, "num_envs": 8}' | PYTHON -m
        benchmarks.peers.shape_one sb3 --cores 1 --seconds 3

Reads one shape from each line and prints one line of JSON for it. The process lives as long as the
table takes, so that imports are paid once; while others are timed it waits for its next line.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import os
import sys
from dataclasses import replace
from typing import Any

from benchmarks.peers.trial import MATCHED, WIDE, Finished, Recipe, Speed

SLOW_FLOPS = 12e9
"""That a core does at least."""


def recipe_of(shape: dict[str, Any]) -> Recipe:
    """Return the recipe of a shape: with many environments, larger minibatches."""
    base = MATCHED if shape["num_envs"] <= 8 else WIDE
    env = f"benchmarks.peers.shaped_env:Shaped{shape['observations']}-v0"
    return replace(base, env=env, num_envs=shape["num_envs"], hidden=tuple(shape["hidden"]))


def slow_rollouts(recipe: Recipe, observations: int, cores: int) -> float:
    """Return the seconds that five rollouts take a slow machine: muster has a line for each."""
    widths = [observations, *recipe.hidden]
    products = 2 * sum(a * b for a, b in itertools.pairwise(widths))
    flops = 2 * products * (1 + 3 * recipe.epochs) * recipe.batch
    return 5 * flops / (SLOW_FLOPS * cores)


def main() -> None:
    """Answer every line."""
    parser = argparse.ArgumentParser(description="Trials of PPO at many shapes.")
    parser.add_argument("library", choices=("muster", "sb3", "sbx", "skrl"))
    parser.add_argument("--cores", type=int, default=1, help="threads, or workers of muster (1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="at least as long (3)")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.cores)
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    module = importlib.import_module(f"benchmarks.peers.libraries.{options.library}")
    for line in sys.stdin:
        shape = json.loads(line)
        recipe = recipe_of(shape)
        trial = Speed(recipe, 1, options.cores, seconds=options.seconds, warm_updates=2)
        if options.library == "muster":
            workers = 0 if options.cores == 1 else options.cores
            trial.seconds = max(
                trial.seconds, slow_rollouts(recipe, shape["observations"], options.cores)
            )
            result = module.run(trial, workers, warm_lines=1)
        else:
            with contextlib.suppress(Finished):
                module.run(trial)
            result = trial.result()
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
