"""SAC updates per second beside other libraries, each in its own virtual environment, interleaved.

    python benchmarks/peers/sac.py --venvs DIR --json benchmarks/results/peers_sac.json

As `dqn.py`, on Pendulum-v1: one update of 256 transitions after each environment step. Each library
may use both cores: torch has two threads in Stable-Baselines3, which is fastest there, JAX takes
what it likes in sbx, and muster has a thread for each half of a batch.
"""

import sys
from pathlib import Path

# Run by its path, it would look for `benchmarks` beside itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.updates import compare_updates

SHAPES = ("256x256", "64x64", "400x300")
BOUNDS = {("sb3", "256x256"): 3.0, ("sbx", "256x256"): 1.4}


if __name__ == "__main__":
    compare_updates("sac", ("sb3", "sbx"), SHAPES, BOUNDS, env_steps=3_000)
