"""Updates per second of one algorithm beside other libraries, at several widths, interleaved."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.running import Timed, arguments, compared, finish, pythons, race


def compare_updates(
    algo: str,
    peers: Sequence[str],
    widths: Sequence[int],
    bounds: Mapping[tuple[str, int], float],
    env_steps: int,
) -> None:
    """Time all, print JSON, and write it where it was asked for.

    Args:
        algo: `<algo>_one.py` beside this file times it with one library.
        peers: Names of virtual environments.
        widths: Of two hidden layers.
        bounds: Least ratio to a peer at a width.
        env_steps: Of each timing, unless others are asked for.
    """
    parser = arguments(f"{algo.upper()} updates per second beside other libraries.")
    parser.add_argument(
        "--env-steps", type=int, default=env_steps, help=f"steps of each timing ({env_steps})"
    )
    options = parser.parse_args()
    found, skipped = pythons(options.venvs, peers)
    one = str(Path(__file__).with_name(f"{algo}_one.py"))
    lanes = {
        f"{library} {width}": [python, one, library, str(width), str(options.env_steps)]
        for width in widths
        for library, python in found.items()
    }
    raced = race(lambda _: lanes, options.rounds, _speed)
    ratios = {}
    for width in widths:
        for peer in found.keys() - {"muster"}:
            per_round = [
                _speed(each[f"muster {width}"]) / _speed(each[f"{peer} {width}"])
                for each in raced.rounds
            ]
            bound = bounds.get((peer, width))
            ratios[f"muster / {peer}, {width}x{width}"] = compared(per_round, bound)
    result = {
        "command": f"python benchmarks/peers/{algo}.py --venvs DIR --rounds {options.rounds}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "skipped": skipped,
        "ratios": ratios,
        "updates_per_s_and_cpu_share": raced.rounds,
    }
    finish(result, ratios, options.json)


def _speed(timed: Timed) -> float:
    return float(timed["updates_per_s"])
