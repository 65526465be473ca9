"""The whole tutorial program on three nodes at once: change one line, run it three times.

Each node collects, trains and evaluates, like the tutorial's first step beyond one process. The
first node that solves CartPole-v1 ends all three.
"""

import tutorial_cartpole

from muster import Parallel

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=3, topology="star")(tutorial_cartpole.main)
