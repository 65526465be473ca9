"""A slow learner and four fast actors: who waits, what grows, how many samples for each insert.

    python -m benchmarks.backpressure [--seconds 120] [--json benchmarks/results/backpressure.json]

Actors step real CartPole-v1 environments as fast as they can and push into replay at the learner,
which takes 20 ms for each loop. Every node writes down its memory once a second; the slope is that
of a straight line through the second half, with the interval that holds it at 95 %. Exit code 1 if
a node grows by more than 1 MB a minute, or if samples per insert are off by more than 2 %.
"""

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import rounds as taking

from muster import Context, Parallel, Task
from muster.data import ReplayBuffer, SamplesPerInsert
from muster.envs import make_envs
from muster.workers import Collector

NUM_ENVS, STEPS, BATCH = 8, 16, 256
RATIO = 4.0
LEARNER_PAUSE = 0.02
LOOPS_SAMPLES = 2 * BATCH


class RandomPolicy:
    """Acts at random."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def explore(self, obs: Any, epsilon: float = 0.0) -> Any:
        """Return an action for each observation."""
        return self._rng.integers(0, 2, len(obs))


def memory() -> float:
    """Return this process's own memory in MB, without what it shares."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main_of_nodes(seconds: float) -> dict[str, Any]:
    """Be the learner or an actor, and return what was seen."""
    envs = make_envs("CartPole-v1", NUM_ENVS, seed=os.getpid())
    spaces = envs.single_observation_space, envs.single_action_space
    buffer = ReplayBuffer(
        20_000,
        *spaces,
        num_envs=NUM_ENVS,
        min_size=1_000,
        home="role.learner",
        limiter=SamplesPerInsert(RATIO, 1_000, error_buffer=RATIO),
    )
    seen: list[tuple[float, float]] = []
    started = time.monotonic()

    def watch(ctx: Context) -> None:
        now = time.monotonic() - started
        if not seen or now - seen[-1][0] >= 1.0:
            seen.append((now, memory()))

    with Task() as task:
        task.ctx.share("total_step")
        if task.router.role == "learner":

            def learn(ctx: Context) -> None:
                if buffer.receive(LOOPS_SAMPLES):
                    for _ in range(LOOPS_SAMPLES // BATCH):
                        buffer.sample(BATCH)
                time.sleep(LEARNER_PAUSE)
                ctx.finish = time.monotonic() - started >= seconds

            task.use(learn)
        else:
            collector = Collector(RandomPolicy(os.getpid()), envs, steps=STEPS)

            def act(ctx: Context) -> None:
                buffer.push(collector.collect())
                collector.take_episodes()

            task.use(act)
        task.use(watch)
        task.run()
    assert buffer.feed is not None and buffer.limiter is not None
    return {
        "role": task.router.role,
        "memory": seen,
        "waited_share": buffer.feed.waited / (time.monotonic() - started),
        "samples": buffer.limiter.samples,
        "inserts": buffer.limiter.inserts,
    }


def slope(seen: list[tuple[float, float]]) -> dict[str, float]:
    """Return the growth in MB a minute over the second half, with its 95 % interval."""
    half = np.asarray(seen[len(seen) // 2 :])
    minutes, megabytes = half[:, 0] / 60, half[:, 1]
    centred = minutes - minutes.mean()
    growth = float(centred @ megabytes / (centred @ centred))
    left = megabytes - megabytes.mean() - growth * centred
    error = math.sqrt(float(left @ left) / (len(half) - 2) / float(centred @ centred))
    return {"mb_per_min": round(growth, 3), "plus_minus": round(1.96 * error, 3)}


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="A slow learner and four fast actors.")
    parser.add_argument("--seconds", type=float, default=120, help="how long to run (120)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    setting = taking.machine()
    runner = Parallel.runner(roles={"learner": 1, "actor": 4})
    learner, *actors = runner(main_of_nodes, options.seconds)
    ratio = learner["samples"] / (learner["inserts"] - 1_000)
    slopes = {f"node {n}": slope(each["memory"]) for n, each in enumerate([learner, *actors])}
    bounds = {
        "growth of every node": {
            "at_most_mb_per_min": 1.0,
            "met": all(each["mb_per_min"] <= 1.0 for each in slopes.values()),
        },
        "samples per insert": {"within": 0.02, "met": abs(ratio / RATIO - 1) <= 0.02},
        "every actor waits": {"met": all(each["waited_share"] > 0.1 for each in actors)},
    }
    result = {
        "command": f"python -m benchmarks.backpressure --seconds {options.seconds:g}",
        **setting,
        "samples_per_insert": {"asked": RATIO, "drawn": round(ratio, 4)},
        "inserts": learner["inserts"],
        "actors_waited_share": [round(each["waited_share"], 3) for each in actors],
        "memory": slopes,
        "bounds": bounds,
    }
    taking.write(result, options.json)
    if not all(bound["met"] for bound in bounds.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
