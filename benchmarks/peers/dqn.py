"""DQN updates per second beside other libraries, each in its own virtual environment, interleaved.

    python benchmarks/peers/dqn.py --venvs DIR --json benchmarks/results/peers_dqn.json

DIR holds one virtual environment per peer: `sb3` (stable-baselines3[extra]==2.9.2) and `sbx`
(sbx-rl==0.28.0), each with torch==2.13.0 installed first. One that is not there is skipped and said
so. Every round times every library once, one after the other; ratios are taken within a round, and
their median over the rounds is reported. Exit code 1 if a bound is missed.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

PEERS = ("sb3", "sbx")
WIDTHS = (256, 64)
BOUNDS = {("sb3", 256): 3.0, ("sbx", 256): 1.4, ("sb3", 64): 5.0}
ONE = Path(__file__).with_name("dqn_one.py")


def time_one(python: str, library: str, width: int, env_steps: int) -> dict[str, float]:
    """Time one library in a process of its own."""
    done = subprocess.run(
        [python, str(ONE), library, str(width), str(env_steps)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Time all, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="DQN updates per second beside other libraries.")
    parser.add_argument("--venvs", type=Path, required=True, help="folder of virtual environments")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take the median over (3)")
    parser.add_argument("--env-steps", type=int, default=8_000, help="steps of each timing (8000)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    pythons = {"muster": sys.executable}
    skipped = []
    for peer in PEERS:
        python = options.venvs / peer / "bin" / "python"
        if python.exists():
            pythons[peer] = str(python)
        else:
            skipped.append(peer)
            print(f"{peer} is skipped: it is not in {options.venvs}", file=sys.stderr)
    rounds: list[dict[str, Any]] = []
    for number in range(options.rounds):
        timed: dict[str, Any] = {}
        for width in WIDTHS:
            for library, python in pythons.items():
                timed[f"{library} {width}"] = time_one(python, library, width, options.env_steps)
        rounds.append(timed)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    ratios = {}
    for width in WIDTHS:
        for peer in pythons.keys() - {"muster"}:
            per_round = [
                each[f"muster {width}"]["updates_per_s"] / each[f"{peer} {width}"]["updates_per_s"]
                for each in rounds
            ]
            bound = BOUNDS.get((peer, width))
            median = statistics.median(per_round)
            ratios[f"muster / {peer}, {width}x{width}"] = {
                "median": round(median, 2),
                "rounds": [round(each, 2) for each in per_round],
                "at_least": bound,
                "met": bound is None or median >= bound,
            }
    result = {
        "command": f"python benchmarks/peers/dqn.py --venvs DIR --rounds {options.rounds}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "skipped": skipped,
        "ratios": ratios,
        "updates_per_s_and_cpu_share": rounds,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if not all(ratio["met"] for ratio in ratios.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
