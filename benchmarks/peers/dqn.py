"""DQN updates per second beside other libraries, each in its own virtual environment, interleaved.

    python benchmarks/peers/dqn.py --venvs DIR --json benchmarks/results/peers_dqn.json

DIR holds one virtual environment per peer: `sb3` (stable-baselines3[extra]==2.9.2) and `sbx`
(sbx-rl==0.28.0), each with torch==2.13.0 installed first. One that is not there is skipped and said
so. Every round times every library once, one after the other; ratios are taken within a round, and
their median over the rounds is reported. Exit code 1 if a bound is missed.
"""

import os
import platform
import sys
from pathlib import Path

# Run by its path, it would look for `benchmarks` beside itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.running import Timed, arguments, compared, finish, pythons, race

PEERS = ("sb3", "sbx")
WIDTHS = (256, 64)
BOUNDS = {("sb3", 256): 3.0, ("sbx", 256): 1.4, ("sb3", 64): 5.0}
ONE = Path(__file__).with_name("dqn_one.py")


def main() -> None:
    """Time all, print JSON, and write it where it was asked for."""
    parser = arguments("DQN updates per second beside other libraries.")
    parser.add_argument("--env-steps", type=int, default=8_000, help="steps of each timing (8000)")
    options = parser.parse_args()
    found, skipped = pythons(options.venvs, PEERS)
    lanes = {
        f"{library} {width}": [python, str(ONE), library, str(width), str(options.env_steps)]
        for width in WIDTHS
        for library, python in found.items()
    }
    raced = race(lambda _: lanes, options.rounds, _speed)
    ratios = {}
    for width in WIDTHS:
        for peer in found.keys() - {"muster"}:
            per_round = [
                _speed(each[f"muster {width}"]) / _speed(each[f"{peer} {width}"])
                for each in raced.rounds
            ]
            bound = BOUNDS.get((peer, width))
            ratios[f"muster / {peer}, {width}x{width}"] = compared(per_round, bound)
    result = {
        "command": f"python benchmarks/peers/dqn.py --venvs DIR --rounds {options.rounds}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "skipped": skipped,
        "ratios": ratios,
        "updates_per_s_and_cpu_share": raced.rounds,
    }
    finish(result, ratios, options.json)


def _speed(timed: Timed) -> float:
    return float(timed["updates_per_s"])


if __name__ == "__main__":
    main()
