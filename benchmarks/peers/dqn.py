"""DQN updates per second beside other libraries, each in its own virtual environment, interleaved.

    python benchmarks/peers/dqn.py --venvs DIR --json benchmarks/results/peers_dqn.json

DIR holds one virtual environment per peer: `sb3` (stable-baselines3[extra]==2.9.2) and `sbx`
(sbx-rl==0.28.0), each with torch==2.13.0 installed first. One that is not there is skipped and said
so. Every round times every library once, one after the other; ratios are taken within a round, and
their median over the rounds is reported. Exit code 1 if a bound is missed.
"""

import sys
from pathlib import Path

# Run by its path, it would look for `benchmarks` beside itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.updates import compare_updates

SHAPES = ("256x256", "64x64", "400x300")
BOUNDS = {("sb3", "256x256"): 3.0, ("sbx", "256x256"): 1.4, ("sb3", "64x64"): 5.0}


if __name__ == "__main__":
    compare_updates("dqn", ("sb3", "sbx"), SHAPES, BOUNDS, env_steps=8_000)
