"""`muster plan` beside the truth: predict one more worker from a calibration without it.

    python -m benchmarks.plan --rounds 3 --json benchmarks/results/plan.json

PPO is calibrated with 1 worker and predicted for 2; DQN and IMPALA are calibrated with 3 processes
(one actor) and predicted for 4. Each round calibrates anew and then measures, so both see the same
machine. `error` is predicted / measured - 1. Exit code 1 if a median error is above 15 %.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.rounds import machine, write

from muster.container import whole_cores
from muster.planning.calibrate import calibrate, measure
from muster.planning.hardware import Hardware
from muster.planning.plan import planned
from muster.planning.shape import shape_of
from muster.recipes.settings import resolve

ENV = "CartPole-v1"
CASES = {"ppo": (1, 2), "dqn": (3, 4), "impala": (3, 4)}
"""Algorithm: the workers of the calibration, and those that are predicted."""
MOST = 0.15


def one_round(algo: str, seconds: float) -> dict[str, Any]:
    """Calibrate, predict and measure."""
    first, second = CASES[algo]
    settings = resolve(algo, ENV, {})
    apart = shape_of(settings).apart
    costs = calibrate(algo, ENV, settings, {}, seconds)
    here = Hardware(machines=1, cores=whole_cores())
    told = planned(costs, settings, here, [first - apart, second - apart], grow=False)
    before, after = told.rows
    options = {"workers": second, "num_envs": settings.options.num_envs}
    found = measure(algo, ENV, options, seconds)
    return {
        "calibrated": {"workers": first, "steps_per_s": round(before.env_steps_per_s)},
        "predicted": {"workers": second, "steps_per_s": round(after.env_steps_per_s)},
        "limited_by": after.limited_by,
        "measured": round(found.steps_per_s),
        "error": round(after.env_steps_per_s / found.steps_per_s - 1, 3),
        "busy_elsewhere": [
            round(costs.measured["busy_elsewhere"], 3),
            round(found.busy_elsewhere, 3),
        ],
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Measure in turn, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each short run (2)")
    parser.add_argument(
        "--only", choices=list(CASES), help="one algorithm; the others stay as in the file"
    )
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    about = machine()
    cases = [options.only] if options.only else list(CASES)
    rounds: dict[str, list[dict[str, Any]]] = {algo: [] for algo in cases}
    for _ in range(options.rounds):
        for algo in cases:
            rounds[algo].append(one_round(algo, options.seconds))
            print(f"{algo}: {json.dumps(rounds[algo][-1])}", file=sys.stderr, flush=True)
    if options.only and options.json and options.json.exists():
        rounds = {**json.loads(options.json.read_text())["rounds"], **rounds}
    medians = {
        algo: round(statistics.median(each["error"] for each in taken), 3)
        for algo, taken in rounds.items()
    }
    write(
        {
            "command": f"python -m benchmarks.plan --rounds {options.rounds} "
            f"--seconds {options.seconds:g}",
            **about,
            "median_error": medians,
            "bound": MOST,
            "rounds": rounds,
        },
        options.json,
    )
    raise SystemExit(any(abs(error) > MOST for error in medians.values()))


if __name__ == "__main__":
    main()
