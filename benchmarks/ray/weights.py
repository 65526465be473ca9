"""New weights of 10 MB until four readers have them: muster's two parameter servers, and bare Ray.

    python -m benchmarks.ray.weights --count 40

All on one private cluster, one after the other, printed as one line of JSON. The clock starts when
the owner begins to push (bare: to put), and stops when the last reader has the arrays in hand, or,
in every second broadcast, has read every number of them. Readers wait before the clock starts:

    nodes    `muster.flow.ParameterServer` on the Ray engine: readers in `pull(newer_than)`
    blocks   `muster.actors.ParameterServer`: actors in `pull(newer_than, timeout=None)`
    bare     one `ray.put`, one call to each of four idle actors, a `ray.get` in each
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from muster import Parallel
from muster.actors import ParameterServer as BlockServer
from muster.actors import cluster
from muster.flow import Channel, ParameterServer

READERS = 4
LAYERS = 10
WARM = 2
"""Broadcasts of each kind that do not count."""
PAUSE = 0.02
"""Seconds between two broadcasts, in which readers begin to wait."""

Weights = dict[str, Any]
Milliseconds = dict[str, float]


def new_weights() -> Weights:
    """Return 10 MB: 2.5 million numbers in ten arrays."""
    rng = np.random.default_rng(0)
    return {f"layer{k}": rng.random((500, 500), np.float32) for k in range(LAYERS)}


def had(weights: Weights, is_read: bool) -> float:
    """Return when the weights are there: now, or when they have been read."""
    if is_read and not sum(float(each.sum()) for each in weights.values()) > 0:
        raise ValueError("weights have come as zeros")
    return time.monotonic()


def on_node(count: int) -> Milliseconds:
    """Be the owner, node 0, which returns the figures, or a reader."""
    server, times = ParameterServer(home=0), Channel("times", home=0)
    if server.is_home:

        def broadcast(weights: Weights, is_read: bool) -> list[float]:
            server.push(weights)
            return [times.get() for _ in range(READERS)]

        return _measured(broadcast, count)
    version = 0
    for number in range(2 * (count + WARM)):
        found = server.pull(newer_than=version)
        if found is None:
            raise RuntimeError("the run has finished before its last broadcast")
        version = found.version
        times.put(had(found.values, is_read=number % 2 == 1))
    return {}


class Reader:
    """A reader on plain Ray."""

    def get(self, refs: list[Any], is_read: bool) -> float:
        """Get what was put; a list keeps Ray from getting it before the call."""
        import ray

        weights: Weights = ray.get(refs[0])
        return had(weights, is_read)

    def pull(self, server: BlockServer, newer_than: int, is_read: bool) -> float:
        """Wait for a version."""
        found = server.pull(newer_than, timeout=None)
        if found is None:
            raise RuntimeError("there was no newer version, though it waited for ever")
        return had(found.weights, is_read)

    def ready(self) -> None:
        """Be there."""


def bare(ray: Any, readers: list[Any], count: int) -> Milliseconds:
    """Measure plain Ray."""

    def broadcast(weights: Weights, is_read: bool) -> list[float]:
        ref = ray.put(weights)
        times: list[float] = ray.get([each.get.remote([ref], is_read) for each in readers])
        return times

    return _measured(broadcast, count)


def blocks(ray: Any, readers: list[Any], count: int) -> Milliseconds:
    """Measure muster's building block."""
    server = BlockServer(new_weights())
    version = 1
    waiting: list[Any] = []

    def wait(is_read: bool) -> None:
        waiting[:] = [each.pull.remote(server, version, is_read) for each in readers]

    def broadcast(weights: Weights, is_read: bool) -> list[float]:
        nonlocal version
        version = server.push(weights)
        times: list[float] = ray.get(waiting)
        return times

    measured = _measured(broadcast, count, wait)
    server.close()
    return measured


def _measured(
    broadcast: Callable[[Weights, bool], list[float]],
    count: int,
    wait: Callable[[bool], None] = lambda is_read: None,
) -> Milliseconds:
    """Return the medians of both kinds.

    Args:
        broadcast: Gives weights to all, and returns when each had them.
        count: Broadcasts of each kind.
        wait: Has readers wait, where they do not by themselves.
    """
    weights = new_weights()
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * (count + WARM)):
        is_read = number % 2 == 1
        wait(is_read)
        time.sleep(PAUSE)
        started = time.monotonic()
        took[is_read].append(max(broadcast(weights, is_read)) - started)
    return {
        name: round(1e3 * float(np.median(took[is_read][WARM:])), 3)
        for name, is_read in (("in hand", False), ("read", True))
    }


def run(count: int) -> dict[str, Milliseconds]:
    """Measure all three on one cluster."""
    with cluster("local", num_cpus=1 + READERS) as ray:
        figures = {"nodes": Parallel.runner(1 + READERS, engine="ray")(on_node, count)[0]}
        actor = ray.remote(num_cpus=0)(Reader)
        readers = [actor.remote() for _ in range(READERS)]
        ray.get([each.ready.remote() for each in readers])
        figures["blocks"] = blocks(ray, readers, count)
        figures["bare"] = bare(ray, readers, count)
    return figures


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description="Weights of 10 MB to four readers.")
    parser.add_argument("--count", type=int, default=40, help="broadcasts of each kind (40)")
    print(json.dumps({"milliseconds": run(parser.parse_args().count)}))


if __name__ == "__main__":
    # Ray sends classes of this module by name, so it has to have its own.
    from benchmarks.ray import weights

    weights.main()
