"""What a second learner gains, where an update is long: updates per second with 1 and 2 learners.

    python -m benchmarks.learners --json benchmarks/results/learners.json

Each case is `muster train` for some seconds in processes of its own, with 1 and with 2 learners in
turns, for some rounds; updates and seconds are those between its first and its last line of metrics
with updates, so that starting and compiling do not count. Both learners come to the same bits
(tests/recipes/test_learners.py), so nothing but time differs. A learner alone uses one core.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import rounds as taking
from benchmarks.peers.running import say

_WIDE = ("--hidden", "512", "512", "--batch-size", "1024", "--buffer-size", "20000")
CASES = {
    "sac, 512x512, batch 1,024": ("sac", "Pendulum-v1", *_WIDE),
    "dqn, 512x512, batch 1,024": ("dqn", "CartPole-v1", *_WIDE),
    "dqn, Nature CNN, batch 128": (
        *("dqn", "Pong-v5", "--batch-size", "128", "--buffer-size", "5000"),
        *("--learning-starts", "500", "--num-envs", "8"),
    ),
    "impala, Nature CNN": ("impala", "Pong-v5", "--model", "nature_cnn", "--num-envs", "8"),
}
LEARNERS = (1, 2)
_ALWAYS = {
    "--env-steps": 10**9,
    "--stop-at": 10**6,
    "--eval-every": 0,
    "--eval-episodes": 1,
    "--eval-seconds": 1,
    "--checkpoint-every": 0,
    "--workers": 0,
}


def updates_per_s(case: str, learners: int, seconds: float) -> float:
    """Train for some seconds, and return the rate between the first and the last line."""
    told = {**_ALWAYS, "--learners": learners, "--seconds": seconds}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [str(word) for pair in told.items() for word in pair]
        command = [sys.executable, "-m", "muster", "train", *CASES[case], *words]
        subprocess.run(
            [*command, "--no-save-replay", "--quiet", "--run-dir", str(run)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    learnt = [line for line in lines if line["train_iter"]]
    first, last = learnt[0], learnt[-1]
    rate: float = (last["train_iter"] - first["train_iter"]) / (last["seconds"] - first["seconds"])
    return rate


def measure(case: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the medians of a case, and what the second learner gains in the median round."""
    taken: dict[int, list[float]] = {learners: [] for learners in LEARNERS}
    for number in range(rounds):
        for learners in LEARNERS:
            say(f"{case}: {learners} learners, round {number + 1} ...")
            taken[learners].append(updates_per_s(case, learners, seconds))
    gains = [two / one for one, two in zip(*taken.values(), strict=True)]
    return {
        "case": case,
        "updates_per_s": {str(k): round(statistics.median(v), 2) for k, v in taken.items()},
        "gain": round(statistics.median(gains), 2),
        "gains": [round(gain, 2) for gain in gains],
    }


def main() -> None:
    """Measure every case, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each case (3)")
    parser.add_argument("--seconds", type=float, default=15, help="of each run (15)")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    result = {
        "command": "python -m benchmarks.learners " + " ".join(sys.argv[1:]),
        **taking.machine(),
        "cases": [measure(case, options.rounds, options.seconds) for case in options.only],
    }
    taking.write(result, options.json)


if __name__ == "__main__":
    main()
