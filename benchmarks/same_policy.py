"""Is the policy the same for any number of workers, at every shape of `benchmarks.shapes`?

    python -m benchmarks.same_policy --json benchmarks/results/same_policy.json

Two rollouts of PPO with one seed, for each shape and each number of workers: every weight has been
stepped in all minibatches of two rollouts then. Besides the layers: an LSTM, a GRU, both CNNs, and
continuous actions of MuJoCo. Exit code 1 if two hashes of one shape differ.
"""

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import rounds as taking
from benchmarks.peers.running import say
from benchmarks.peers.shaped_env import SIZES
from benchmarks.shapes import ENVS, HIDDEN

import muster

WORKERS = (0, 1, 2, 4)
ROLLOUT = 32
SHAPED = "benchmarks.peers.shaped_env:Shaped{}-v0"
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm 128": (SHAPED.format(4), {"model": "lstm", "hidden": (128,)}),
    "gru 128": (SHAPED.format(4), {"model": "gru", "hidden": (128,)}),
    "Pong, Nature CNN": ("Pong-v5", {"model": "nature_cnn"}),
    "Pong, IMPALA CNN": ("Pong-v5", {"model": "impala_cnn"}),
    "HalfCheetah": ("HalfCheetah-v5", {}),
    "Humanoid": ("Humanoid-v5", {}),
}


def cells(envs: list[int]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return environment and options of every shape, by its name."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for count, size, hidden in itertools.product(envs, SIZES, HIDDEN):
        layers = "x".join(map(str, hidden))
        name = f"{layers}, {size} observations, {count} envs"
        found[name] = SHAPED.format(size), {"hidden": hidden, "num_envs": count}
    return {**found, **OTHERS}


def hash_of(env: str, options: dict[str, Any], workers: int, folder: Path) -> str:
    """Return the hash of the policy after two rollouts."""
    given = {"num_envs": 8, "rollout": ROLLOUT, **options}
    result = muster.train(
        "ppo",
        env,
        workers=workers,
        env_steps=2 * ROLLOUT * given["num_envs"],
        eval_every=0,
        eval_episodes=1,
        eval_max_steps=10,
        stop_at=None,
        checkpoint_every=0,
        seed=3,
        run_dir=folder / f"{time.monotonic_ns()}",
        quiet=True,
        **given,
    )
    return result.policy_sha256[:16]


def main() -> None:
    """Train at every shape, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, nargs="+", default=list(ENVS), help="(8 64)")
    parser.add_argument("--only", help="shapes whose name has this in it")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    about, found = taking.machine(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (env, given) in cells(options.envs).items():
            if options.only and options.only not in name:
                continue
            hashes = {
                str(workers): hash_of(env, given, workers, Path(folder)) for workers in WORKERS
            }
            found[name] = hashes
            say(f"{name}: {'same' if len(set(hashes.values())) == 1 else hashes}")
    differ = [name for name, hashes in found.items() if len(set(hashes.values())) > 1]
    command = "python -m benchmarks.same_policy " + " ".join(sys.argv[1:])
    result = {"command": command, **about, "workers": WORKERS, "differ": differ, "hashes": found}
    taking.write(result, options.json)
    if differ or not found:
        raise SystemExit(f"not the same: {', '.join(differ)}" if differ else "no such shape")


if __name__ == "__main__":
    main()
