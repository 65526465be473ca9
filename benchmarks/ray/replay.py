"""Prioritized replay in 1, 2 and 4 shards on Ray, from one driver: what it stores and samples.

    python -m benchmarks.ray.replay cartpole --seconds 3

Prints one line of JSON. Fragments are of 64 steps of 4 environments, batches of 256. Stores go on
while up to `in_flight` fragments are on their way; a batch is waited for before the next one is
asked for. Calls and bytes of one store and of one batch are counted apart from the timing.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from muster.actors import ReplayBuffer, cluster
from muster.data import StepBlock

SIZES: dict[str, tuple[spaces.Box[Any], int]] = {
    "cartpole": (spaces.Box(-5, 5, (4,), np.float32), 100_000),
    "atari": (spaces.Box(0, 255, (84, 84, 4), np.uint8), 16_384),
}
"""Observations, and transitions to remember."""
SHARDS = (1, 2, 4)
STEPS, ENVS, BATCH, IN_FLIGHT = 64, 4, 256, 4
COUNTED = 8
"""Stores and batches whose calls are counted."""

Figures = dict[str, float]


def fragment(space: spaces.Box[Any]) -> StepBlock:
    """Return steps with random content."""
    rng = np.random.default_rng(0)
    shape = (STEPS + 1, ENVS, *space.shape)
    if space.dtype == np.uint8:
        obs: Any = rng.integers(0, 256, shape, np.uint8)
    else:
        obs = rng.random(shape, np.float32)
    return StepBlock.of(
        obs=obs[:-1],
        action=rng.integers(0, 2, (STEPS, ENVS)),
        reward=rng.random((STEPS, ENVS), np.float32),
        next_obs=obs[1:],
        terminated=rng.random((STEPS, ENVS)) < 0.02,
        truncated=np.zeros((STEPS, ENVS), bool),
    )


def measured(kind: str, shards: int, seconds: float) -> Figures:
    """Return rates, calls and bytes with so many shards."""
    from benchmarks.ray.counting import counted  # with Ray, which is started by now

    space, size = SIZES[kind]
    data = fragment(space)
    buffer = ReplayBuffer(
        *(space, spaces.Discrete(2), size),
        shards=shards,
        num_envs=ENVS,
        prioritized=True,
        in_flight=IN_FLIGHT,
    )
    rng = np.random.default_rng(1)

    def store() -> None:
        buffer.store(data)

    def sample() -> Any:
        return buffer.sample_batch(BATCH)

    def learn() -> None:
        buffer.update_priorities(sample(), rng.random(BATCH))

    try:
        for work in (store, buffer.flush, learn, buffer.flush):  # shards are there, and compiled
            for _ in range(2 * shards):
                work()
        figures = {
            "inserts/s": STEPS * ENVS * _rate(store, buffer.flush, seconds),
            "samples/s": BATCH * _rate(sample, buffer.flush, seconds),
            "samples/s with priorities": BATCH * _rate(learn, buffer.flush, seconds),
        }
        for name, work in (("store", store), ("batch", sample), ("learn", learn)):
            with counted() as count:
                for _ in range(COUNTED):
                    work()
            figures[f"calls per {name}"] = count.calls / COUNTED
            figures[f"bytes per {name}"] = (count.sent + count.returned) / COUNTED
        return {name: float(f"{value:.5g}") for name, value in figures.items()}
    finally:
        buffer.close()


def _rate(work: Callable[[], Any], flush: Callable[[], Any], seconds: float) -> float:
    """Return calls per second, until all has arrived."""
    started = time.perf_counter()
    calls = 0
    while time.perf_counter() - started < seconds:
        work()
        calls += 1
    flush()
    return calls / (time.perf_counter() - started)


def main() -> None:
    """Measure every number of shards, and print one line of JSON."""
    parser = argparse.ArgumentParser(description="Prioritized replay in shards on Ray.")
    parser.add_argument("kind", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate (3)")
    options = parser.parse_args()
    with cluster("local"):
        shards = {str(k): measured(options.kind, k, options.seconds) for k in SHARDS}
    print(json.dumps({"shards": shards}))


if __name__ == "__main__":
    main()
