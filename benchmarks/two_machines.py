"""PPO on two machines of one core each, beside one machine of two cores, in turn.

    python -m benchmarks.two_machines --rounds 3 --json benchmarks/results/two_machines.json

Machines are network namespaces on this one (`benchmarks/machines.py`), with Ray on each: so both
have the same two cores, and what is measured is the cost of the network's protocols, without its
distance. `ratio` is the rate of two machines divided by that of one; the same policy comes of both.
Exit code 1 if the ratio is below 0.6, or if the policies differ.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machines import Machines
from benchmarks.rounds import machine, write

ROOT = Path(__file__).parents[1]
LEAST = 0.6
CLUSTERS = {"one machine": [2], "two machines": [1, 1]}


def train(cpus: list[int], env_steps: int) -> dict[str, Any]:
    """Train on a cluster of such machines, and return the result of the run."""
    command = [sys.executable, "-m", "muster", "train", "ppo", "CartPole-v1", "--workers", "2"]
    command += ["--env-steps", str(env_steps), "--stop-at", "501", "--eval-every", "0"]
    command += ["--eval-episodes", "1", "--checkpoint-every", "0", "--quiet"]
    with tempfile.TemporaryDirectory() as folder, Machines(cpus) as machines:
        place = Path(folder, "run")
        command += ["--run-dir", str(place), "--engine", "ray", "--address", machines.address]
        run = machines.start(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        if run.wait(900):
            raise SystemExit(f"the run on {cpus} failed")
        found: dict[str, Any] = json.loads((place / "result.json").read_text())
        return found


def main() -> None:
    """Measure in turn, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--env-steps", type=int, default=204_800, help="of each run (204800)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    about = machine()
    rates: dict[str, list[float]] = {name: [] for name in CLUSTERS}
    policies = set()
    for _ in range(options.rounds):
        for name, cpus in CLUSTERS.items():
            result = train(cpus, options.env_steps)
            rates[name].append(round(result["env_steps_per_s"]))
            policies.add(result["policy_sha256"])
            print(f"{name}: {rates[name][-1]:,.0f} steps/s", file=sys.stderr)
    pairs = zip(rates["two machines"], rates["one machine"], strict=True)
    ratio = round(statistics.median(two / one for two, one in pairs), 3)
    write(
        {
            "command": f"python -m benchmarks.two_machines --rounds {options.rounds} "
            f"--env-steps {options.env_steps}",
            **about,
            "steps_per_s": rates,
            "ratio": ratio,
            "bound": LEAST,
            "same_policy": len(policies) == 1,
        },
        options.json,
    )
    raise SystemExit(ratio < LEAST or len(policies) > 1)


if __name__ == "__main__":
    main()
