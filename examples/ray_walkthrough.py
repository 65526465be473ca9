"""Ray's three ideas on one page: tasks, actors and objects.

    python examples/ray_walkthrough.py

A task is a function that runs somewhere on the cluster; an actor is an object that lives there.
Both return a reference at once: a promise of a value, for which `ray.get` waits. References can be
passed to other tasks, so values move directly between the processes that need them, not through
this program.
"""

import numpy as np

from muster.actors import cluster


def compute(number: int) -> int:
    return number * number


def total(values: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    return int(values.sum())


class Counter:
    """Holds a number. As an actor it executes one call at a time, in order."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def increment(self) -> int:
        """Count one more."""
        self.value += 1
        return self.value


def main() -> dict[str, object]:
    """Run everything on a cluster that is private to this process, and ends with the block."""
    with cluster(num_cpus=2) as ray:  # ray.init(), and ray.shutdown() at the end of the block
        # Ten tasks at once. Results are in the order of the references, whichever finished first.
        square = ray.remote(compute)
        results = ray.get([square.remote(number) for number in range(10)])

        # One actor. It executes the calls of one caller in order.
        counter = ray.remote(Counter).remote()
        counts = ray.get([counter.increment.remote() for _ in range(10)])

        # One object. It is written once; tasks receive the reference and read the same memory.
        numbers = ray.put(np.arange(1_000_000))
        add_up = ray.remote(total)
        sums = ray.get([add_up.remote(numbers) for _ in range(2)])
    return {"results": results, "counts": counts, "sums": sums, "is_left": not ray.is_initialized()}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value}")
