"""How well `muster fit` tells digits apart, and that replicas do not change a bit of it.

    python -m benchmarks.fit_digits --seeds 3 --json benchmarks/results/fit_digits.json

Each run is a command of its own. Seconds are of a machine that others use, too: look at accuracy.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from muster.container import cores

COMMAND = "muster fit resnet8 --data digits --epochs {epochs} --replicas {replicas} --seed {seed}"
KEPT = ("test_accuracy", "test_samples", "train_iter", "seconds", "samples_per_s", "model_sha256")


def fitted(epochs: int, replicas: int, seed: int) -> dict[str, Any]:
    """Run one command and return what it came to."""
    words = COMMAND.format(epochs=epochs, replicas=replicas, seed=seed).split()[1:]
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-m", "muster", *words, "--quiet", "--run-dir", str(run)]
        subprocess.run(command, check=True, capture_output=True, timeout=1_800)
        result = json.loads((run / "result.json").read_text())
    return {"seed": seed, "replicas": replicas, **{key: result[key] for key in KEPT}}


def main() -> None:
    """Run all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs = [
        fitted(options.epochs, replicas, seed)
        for seed in range(options.seeds)
        for replicas in (1, 2)
    ]
    hashes = [
        {run["model_sha256"] for run in runs if run["seed"] == s} for s in range(options.seeds)
    ]
    found = {
        "command": COMMAND.replace("{epochs}", str(options.epochs)),
        "python": platform.python_version(),
        "cores": cores(),
        "least_test_accuracy": min(run["test_accuracy"] for run in runs),
        "same_bits_for_1_and_2_replicas": all(len(each) == 1 for each in hashes),
        "runs": runs,
    }
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
