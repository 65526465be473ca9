"""Updates per second of one algorithm beside other libraries, at several shapes, interleaved."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.running import Timed, arguments, compared, finish, pythons, race


def compare_updates(
    algo: str,
    peers: Sequence[str],
    shapes: Sequence[str],
    bounds: Mapping[tuple[str, str], float],
    env_steps: int,
) -> None:
    """Time all, print JSON, and write it where it was asked for.

    Args:
        algo: `<algo>_one.py` beside this file times it with one library.
        peers: Names of virtual environments.
        shapes: Widths of the hidden layers, such as 400x300.
        bounds: Least ratio to a peer at a shape.
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
        f"{library} {shape}": [python, one, library, shape, str(options.env_steps)]
        for shape in shapes
        for library, python in found.items()
    }
    raced = race(lambda _: lanes, options.rounds, _speed)
    ratios = {}
    for shape in shapes:
        for peer in found.keys() - {"muster"}:
            per_round = [
                _speed(each[f"muster {shape}"]) / _speed(each[f"{peer} {shape}"])
                for each in raced.rounds
            ]
            bound = bounds.get((peer, shape))
            ratios[f"muster / {peer}, {shape}"] = compared(per_round, bound)
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
