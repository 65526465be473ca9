"""The shared-agent DQN on its three backends: do the learning curves lie in one band?

    python -m benchmarks.shared_agent [--json benchmarks/results/shared_agent_dqn.json]

Trains `examples/shared_agent_dqn.py` with several seeds on each backend. A curve is the mean return
of the training episodes, 25 at a time, in the order in which they ended. Two backends lie in one
band if their means over the seeds differ nowhere by more than four standard errors of the
difference (of some 24 differences and few seeds, the largest is often three). Exit code 1 if not.
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.rounds import machine, write

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import shared_agent_dqn as example

BIN = 25
"""Episodes of one point of a curve."""
BAND = 4.0
"""Standard errors."""


def curves(backend: Any, seeds: int, episodes: int) -> dict[str, Any]:
    """Train with each seed and return the curves and what was done."""
    found: list[dict[str, Any]] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            cfg = example.Config(backend=backend, episodes=episodes, seed=seed, folder=Path(folder))
            result = example.train(cfg)
        curve = np.reshape(result["returns"][:episodes], (-1, BIN)).mean(axis=1)
        found.append(
            {
                "seed": seed,
                "curve": curve.round(1).tolist(),
                "env_steps": result["env_steps"],
                "updates": result["updates"],
                "best_reward": round(result["best_reward"], 1),
            }
        )
        print(f"{backend} {found[-1]}", flush=True)
    all_curves = np.array([each["curve"] for each in found])
    return {
        "mean": all_curves.mean(axis=0).round(1).tolist(),
        "standard_error": (all_curves.std(axis=0, ddof=1) / np.sqrt(seeds)).round(2).tolist(),
        "seeds": found,
    }


def widest(backends: dict[str, dict[str, Any]]) -> float:
    """Return the largest difference of two means, in standard errors of the difference."""
    most = 0.0
    for one, other in itertools.combinations(backends.values(), 2):
        difference = np.abs(np.subtract(one["mean"], other["mean"]))
        error = np.hypot(one["standard_error"], other["standard_error"])
        most = max(most, float((difference / error).max()))
    return round(most, 2)


def main() -> None:
    """Train on all backends and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=["single", "local", "ray"])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    backends = {name: curves(name, options.seeds, options.episodes) for name in options.backends}
    result = {
        **machine(),
        "command": f"python -m benchmarks.shared_agent --seeds {options.seeds}",
        "episodes_per_point": BIN,
        "workers": {name: 1 if name == "single" else 2 for name in options.backends},
        "largest_difference_in_standard_errors": widest(backends),
        "in_one_band": widest(backends) < BAND,
        "backends": backends,
    }
    print({name: each["mean"] for name, each in backends.items()})
    print(f"largest difference: {widest(backends)} standard errors")
    write(result, options.json)
    sys.exit(0 if result["in_one_band"] else 1)


if __name__ == "__main__":
    main()
