"""Ray's three ideas in one page: tasks, actors and objects.

    python examples/ray_walkthrough.py

A task is a function that runs somewhere, an actor an object that lives somewhere, and both return a
reference at once: a promise of a value, which `ray.get` waits for. References can be given to other
tasks, so values move between those who need them and not through the program that wrote this down.
"""

import numpy as np

from muster.actors import cluster


def compute(number: int) -> int:
    return number * number


def total(values: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    return int(values.sum())


class Counter:
    """Keeps a number. As an actor it is asked one thing at a time, in order."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def increment(self) -> int:
        """Count one more."""
        self.value += 1
        return self.value


def main() -> dict[str, object]:
    """Run it all on a cluster that is private to this process, and gone afterwards."""
    with cluster(num_cpus=2) as ray:  # ray.init(), and ray.shutdown() when the block is left
        # Ten tasks at once. The results come in the order of the references, whoever was first.
        square = ray.remote(compute)
        results = ray.get([square.remote(number) for number in range(10)])

        # One actor. Calls of one caller are carried out in order.
        counter = ray.remote(Counter).remote()
        counts = ray.get([counter.increment.remote() for _ in range(10)])

        # One object. It is written once; tasks get the reference and read the same memory.
        numbers = ray.put(np.arange(1_000_000))
        add_up = ray.remote(total)
        sums = ray.get([add_up.remote(numbers) for _ in range(2)])
    return {"results": results, "counts": counts, "sums": sums, "is_left": not ray.is_initialized()}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value}")
