"""What a step of `GymnasiumVectorEnv` costs above the envs themselves, and what its checks cost.

    python benchmarks/env_check_cost.py [--rounds 201] [--json FILE]

CartPole-v1 with the same random actions in four ways, in a random order in each round so that all
see the same machine: a plain loop over `env.step` (with seeded resets, as ours), our vector env,
ours with its checks switched off, and `gymnasium.vector.SyncVectorEnv`. CPU time per env step,
resets included (an episode has about 22 steps); medians over the rounds, of differences within a
round. Exit code 1 if a bound is missed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from muster.envs import GymnasiumVectorEnv
from muster.seeding import derive_seed, generator

ENV_ID = "CartPole-v1"
COUNTS = (1, 8, 64)
ENV_STEPS = 1_600
"""Env steps per measurement, over all envs."""

# Of a bare step, because the machine's clock changes: 27 % are 2 us where a bare step is 7.5 us.
BOUNDS = {
    "8 envs: above_bare_percent": 30.0,
    "8 envs: checks_percent": 3.0,
    "64 envs: above_bare_percent": 15.0,
    "64 envs: checks_percent": 3.0,
}


def make_one() -> gym.Env[Any, Any]:
    """Make one env as everybody does who wants it fast."""
    return gym.make(ENV_ID, disable_env_checker=True)


class Arms:
    """The ways to do the same steps, as CPU seconds.

    Ours and the plain loop have the same env objects: where these happen to lie in memory makes
    more difference than what is to be measured.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.steps = ENV_STEPS // count
        self._actions = generator(0, "benchmark", count).integers(0, 2, (self.steps, count))
        self._listed = self._actions.tolist()
        self._seeds = [derive_seed(0, "bare", number) for number in range(ENV_STEPS)]
        self._ours = GymnasiumVectorEnv(ENV_ID, make_one, count, seed=0)
        self._envs = self._ours._envs
        self._theirs = gym.vector.SyncVectorEnv(
            [make_one] * count, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
        )

    def bare(self) -> float:
        """Loop over the envs, keep nothing of what they return, reset with a seed at each end."""
        envs, seeds = self._envs, iter(self._seeds)
        for env in envs:
            env.reset(seed=0)
        started = time.process_time()
        for row in self._listed:
            for env, action in zip(envs, row, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset(seed=next(seeds))
        return time.process_time() - started

    def checked(self) -> float:
        """Step our vector env."""
        return self._step(True)

    def unchecked(self) -> float:
        """Step our vector env without its checks."""
        return self._step(False)

    def sync_vector_env(self) -> float:
        """Step gymnasium's vector env, which resets without a new seed and checks nothing."""
        self._theirs.reset(seed=0)
        started = time.process_time()
        for row in self._actions:
            self._theirs.step(row)
        return time.process_time() - started

    def _step(self, checks: bool) -> float:
        envs = self._ours
        for part in (envs, envs._observations, envs._actions):
            part._checks = checks
        envs._numbers = [-1] * self.count  # the same episodes every time
        envs.reset()
        started = time.process_time()
        for row in self._actions:
            envs.step(row)
        return time.process_time() - started


def measure(count: int, rounds: int) -> dict[str, dict[str, float]]:
    """Take all figures for so many envs."""
    arms = Arms(count)
    runs = {
        "bare": arms.bare,
        "checked": arms.checked,
        "unchecked": arms.unchecked,
        "sync_vector_env": arms.sync_vector_env,
    }
    order = generator(0, "benchmark", "order")
    taken: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        us = {}
        for name in order.permutation(list(runs)).tolist():
            us[name] = runs[name]() / (arms.steps * count) * 1e6
        if number == 0:
            continue  # warm up
        figures = {f"{name}_us": value for name, value in us.items()}
        figures["above_bare_us"] = us["checked"] - us["bare"]
        figures["above_bare_percent"] = 100 * (us["checked"] - us["bare"]) / us["bare"]
        figures["checks_us"] = us["checked"] - us["unchecked"]
        figures["checks_percent"] = 100 * (us["checked"] - us["unchecked"]) / us["checked"]
        for name, value in figures.items():
            taken.setdefault(name, []).append(value)
    summary = {}
    for name, values in taken.items():
        low, median, high = statistics.quantiles(values, n=4)
        summary[name] = {"median": round(median, 3), "q1": round(low, 3), "q3": round(high, 3)}
    return summary


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Measure what checked env steps cost.")
    parser.add_argument(
        "--rounds", type=int, default=201, help="rounds to take the median of (201)"
    )
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds has to be 2 or more, for a median")
    figures = {}
    for count in COUNTS:
        figures[f"{count} envs"] = measure(count, options.rounds)
        print(f"{count} envs done", file=sys.stderr)
    bounds = {}
    for name, bound in BOUNDS.items():
        envs, figure = name.split(": ")
        bounds[name] = {"at_most": bound, "met": figures[envs][figure]["median"] <= bound}
    result = {
        "command": f"python benchmarks/env_check_cost.py --rounds {options.rounds}",
        "env_id": ENV_ID,
        "unit": "CPU microseconds per env step",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gym.__version__,
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        "figures": figures,
        "bounds": bounds,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if not all(bound["met"] for bound in bounds.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
