"""What replay costs: microseconds of CPU time per call, and tree samples per second of it.

    python benchmarks/replay_speed.py [--rounds 15] [--json benchmarks/results/replay_speed.json]

Uniform replay holds 50,000 CartPole transitions of 8 environments, prioritized replay 2^20 with
priorities as a learner leaves them. Every figure is taken once in each round, so that all of them
see the same machine, and the median over the rounds is reported with its quartiles. One thread does
it all, so its CPU time is its cost, whatever else runs; `cpu_share` says how much of the machine it
got. `numpy` in front of a name is the same without numba. Exit code 1 if a bound is missed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from muster.data import ReplayBuffer, SumTree, kernels, sum_tree

NUM_ENVS = 8
UNIFORM_SIZE, UNIFORM_BATCH = 50_000, 64
PRIORITIZED_SIZE, PRIORITIZED_BATCH = 1 << 20, 256
CARTPOLE = spaces.Box(-np.inf, np.inf, (4,)), spaces.Discrete(2)
ATARI = spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(6)
"""Images that are stored as they come."""
STACKS = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)
"""As many bytes, of frames of which each is stored once."""
FEW, FILM = range(64), 512

AT_MOST = {"uniform_sample_64_us": 15.0, "add_8_envs_us": 10.0}
AT_LEAST = {"tree_samples_per_s": 10e6}

Step = tuple[np.ndarray[Any, Any], ...]


def random_step(obs_space: spaces.Box, rng: np.random.Generator) -> Step:
    """Return the arguments of an `add`; one step in 100 ends an episode."""
    shape = (NUM_ENVS, *obs_space.shape)
    obs = (rng.random(shape) * 255).astype(obs_space.dtype)
    ended = rng.random(NUM_ENVS) < 0.01
    reward = rng.random(NUM_ENVS).astype(np.float32)
    return obs, np.ones(NUM_ENVS, np.int64), reward, obs, ended, np.zeros(NUM_ENVS, np.bool_)


def random_film(obs_space: spaces.Box, rng: np.random.Generator) -> list[Step]:
    """Return steps whose observations are the last frames, each with those of the one before."""
    shape = (FILM + obs_space.shape[0], NUM_ENVS, *obs_space.shape[1:])
    frames = (rng.random(shape, np.float32) * 255).astype(np.uint8)
    stacks = [
        np.ascontiguousarray(np.moveaxis(frames[t : t + obs_space.shape[0]], 0, 1))
        for t in range(FILM + 1)
    ]
    going_on = np.zeros(NUM_ENVS, np.bool_)
    reward, action = np.zeros(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, np.int64)
    return [(now, action, reward, then, going_on, going_on) for now, then in pairwise(stacks)]


def filled(capacity: int, obs_space: spaces.Box, actions: spaces.Discrete, **options: Any) -> Any:
    """Return a full buffer and steps to add to it."""
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(capacity, obs_space, actions, num_envs=NUM_ENVS, **options)
    is_film = obs_space == STACKS[0]
    steps = random_film(obs_space, rng) if is_film else [random_step(obs_space, rng) for _ in FEW]
    for number in range(buffer.capacity // NUM_ENVS):
        buffer.add(*steps[number % len(steps)])
    return buffer, steps


def microseconds(call: Callable[[], object], times: int) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times * 1e6


def adding(buffer: ReplayBuffer, steps: list[Step]) -> Callable[[], object]:
    """Return a call that adds the next step."""
    turn = 0

    def add() -> None:
        nonlocal turn
        turn = (turn + 1) % len(steps)
        buffer.add(*steps[turn])

    return add


class Bench:
    """Full buffers, and the figures that are taken of them."""

    def __init__(self) -> None:
        self.uniform, steps = filled(UNIFORM_SIZE, *CARTPOLE)
        self.add = adding(self.uniform, steps)
        self.three_step, _ = filled(UNIFORM_SIZE, *CARTPOLE, n_step=3)
        self.images, image_steps = filled(4096, *ATARI)
        self.add_images = adding(self.images, image_steps)
        self.stacks, film = filled(4096, *STACKS)
        self.add_stacks = adding(self.stacks, film)
        self.prioritized, more = filled(PRIORITIZED_SIZE, *CARTPOLE, prioritized=True)
        self.add_prioritized = adding(self.prioritized, more)
        self.rng = np.random.default_rng(1)
        self.tree = SumTree(PRIORITIZED_SIZE)
        self.tree.load(np.abs(self.rng.normal(size=PRIORITIZED_SIZE)) ** 0.6)
        self.td_error = self.rng.normal(size=PRIORITIZED_BATCH)
        for _ in range(4096):
            self.update()

    def update(self) -> None:
        """Sample with priorities, and return new ones."""
        batch = self.prioritized.sample(PRIORITIZED_BATCH)
        self.prioritized.update_priorities(batch.index, self.td_error)

    def find(self, masses: list[np.ndarray[Any, Any]]) -> None:
        """Draw stratified leaves from the tree alone."""
        for mass in masses:
            self.tree.find(mass)

    def one_round(self) -> dict[str, float]:
        """Take every figure once."""
        wall, cpu = time.perf_counter(), time.process_time()
        index = self.prioritized.sample(PRIORITIZED_BATCH).index
        strata = np.arange(PRIORITIZED_BATCH)
        part = self.tree.total / PRIORITIZED_BATCH
        masses = [(strata + self.rng.random(PRIORITIZED_BATCH)) * part for _ in range(500)]
        find_us = microseconds(lambda: self.find(masses), 1) / len(masses)
        figures = {
            "uniform_sample_64_us": microseconds(lambda: self.uniform.sample(64), 5000),
            "uniform_sample_64_3_step_us": microseconds(lambda: self.three_step.sample(64), 5000),
            "sample_many_16x64_us": microseconds(lambda: self.uniform.sample_many(16, 64), 500),
            "add_8_envs_us": microseconds(self.add, 5000),
            "add_8_envs_prioritized_us": microseconds(self.add_prioritized, 5000),
            "add_8_images_us": microseconds(self.add_images, 300),
            "uniform_sample_64_images_us": microseconds(lambda: self.images.sample(64), 50),
            "add_8_stacks_us": microseconds(self.add_stacks, 300),
            "uniform_sample_64_stacks_us": microseconds(lambda: self.stacks.sample(64), 50),
            "memory_of_stacks_to_images": self.stacks.nbytes / self.images.nbytes,
            "prioritized_sample_256_us": microseconds(lambda: self.prioritized.sample(256), 500),
            "update_priorities_256_us": microseconds(
                lambda: self.prioritized.update_priorities(index, self.td_error), 500
            ),
            "tree_samples_per_s": PRIORITIZED_BATCH / find_us * 1e6,
        }
        figures["cpu_share"] = (time.process_time() - cpu) / (time.perf_counter() - wall)
        return figures

    def one_round_of_numpy(self) -> dict[str, float]:
        """Take the figures that numba matters to, without it."""
        compiled = {}
        for module, names in ((kernels, ("resolve", "take", "take_next")), (sum_tree, ("find",))):
            for name in names:
                compiled[module, name] = getattr(module, name)
                setattr(module, name, getattr(module, f"{name}_numpy"))
        try:
            return {
                "numpy_uniform_sample_64_us": microseconds(lambda: self.uniform.sample(64), 500),
                "numpy_prioritized_sample_256_us": microseconds(
                    lambda: self.prioritized.sample(256), 100
                ),
            }
        finally:
            for (module, name), kernel in compiled.items():
                setattr(module, name, kernel)


def measure(rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Take all figures in every round and summarise them."""
    bench = Bench()
    bench.one_round()  # warm up
    taken = []
    for number in range(rounds):
        taken.append(bench.one_round() | bench.one_round_of_numpy())
        say(f"round {number + 1} of {rounds}")
    figures: dict[str, dict[str, float]] = {}
    for name in taken[0]:
        low, median, high = statistics.quantiles([each[name] for each in taken], n=4)
        figures[name] = {"median": round(median, 3), "q1": round(low, 3), "q3": round(high, 3)}
    bounds: dict[str, dict[str, Any]] = {}
    for name, bound in AT_MOST.items():
        bounds[name] = {"at_most": bound, "met": figures[name]["median"] <= bound}
    for name, bound in AT_LEAST.items():
        bounds[name] = {"at_least": bound, "met": figures[name]["median"] >= bound}
    return {
        "command": f"python benchmarks/replay_speed.py --rounds {rounds}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cores": os.cpu_count(),
        "rounds": rounds,
        "figures": figures,
        "bounds": bounds,
    }


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Measure what muster's replay buffer costs.")
    parser.add_argument(
        "--rounds", type=int, default=15, help="rounds to take the median over (15)"
    )
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds has to be 2 or more, for a median")
    result = measure(options.rounds, lambda line: print(line, file=sys.stderr))
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if not all(bound["met"] for bound in result["bounds"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
