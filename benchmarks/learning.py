"""How well an algorithm learns, over several seeds: what it reaches, how fast, and the curves.

    python -m benchmarks.learning ppo --env CartPole-v1 --seeds 10 --json FILE

Each seed is one `muster train ALGO ENV` in a process of its own, with the preset's options and what
follows `--`; `--jobs` of them run at a time. Options are chosen with other seeds than those that
are shown: `--first-seed`. A seed counts as solved if the mean return of the final greedy episodes,
from seeds of their own, reaches `--solved` (the preset's `stop_at`, if it is not given). Exit code
1 if a seed does not; with `--mean`, if the mean of all seeds does not. With `--keep DIR` the runs
stay there, and those that are there already are resumed, which changes no bit: so a comparison may
be interrupted. With `--json FILE --add`, seeds that FILE has are not trained again: so it may also
be spread over days.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.rounds import machine, write

from muster.recipes.presets import preset

POINTS = 100
"""Of a curve, at most."""
SHOWN = ("seed", "env_steps", "train_iter", "seconds", "env_steps_per_s", "workers")
SCORES = ("eval_return_mean", "eval_return_std", "eval_episodes", "policy_sha256", "stopped_by")


def train_one(algo: str, env: str, seed: int, folder: Path, more: list[str]) -> dict[str, Any]:
    """Train with one seed and return its result and its curve."""
    place = folder / str(seed)
    command = ["train", algo, env, "--seed", str(seed), "--run-dir", str(place), *more]
    resumed = place.exists()
    if resumed:
        command = ["resume", str(place)]
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "muster.cli.main", *command, "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=7200,
    )
    result = json.loads((place / "result.json").read_text())
    return {
        **{name: result[name] for name in (*SHOWN, *SCORES)},
        "process_seconds": round(time.monotonic() - started, 2),
        **({"resumed": True} if resumed else {}),
        "curve": curve_of(place / "metrics.jsonl"),
    }


def curve_of(metrics: Path) -> list[tuple[int, float]]:
    """Return (env_step, mean return of the episodes since the point before) of a run."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = [
        (each["env_step"], each["collect/return"]) for each in lines if "collect/return" in each
    ]
    size = max(1, math.ceil(len(found) / POINTS))
    pieces = [found[first : first + size] for first in range(0, len(found), size)]
    return [(piece[-1][0], round(sum(r for _, r in piece) / len(piece), 2)) for piece in pieces]


def main() -> None:
    """Train with every seed, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Train with several seeds until it is solved.")
    parser.add_argument("algo", help="name of the algorithm")
    parser.add_argument("--env", default="CartPole-v1", help="environment (CartPole-v1)")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds (5)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=1, help="seeds that train at a time (1)")
    parser.add_argument("--solved", type=float, help="return to reach (the preset's stop_at)")
    parser.add_argument("--mean", action="store_true", help="only the mean of all seeds has to")
    parser.add_argument("--keep", type=Path, help="folder of the runs, which are kept and resumed")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--add", action="store_true", help="train only seeds that FILE lacks")
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    if options.add and options.json is None:
        parser.error("--add needs --json FILE: the file that has the other seeds")
    study = Study(options, more)
    if options.add:
        study.add_from(options.json)
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder)

        def one(seed: int) -> None:
            run = train_one(options.algo, options.env, seed, place, more)
            shown = {name: value for name, value in run.items() if name != "curve"}
            print(f"seed {seed}: {shown}", file=sys.stderr)
            study.add(run)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(one, study.missing()))
    write(study.result(), options.json)
    if not study.is_solved():
        raise SystemExit(1)


class Study:
    """The runs of all seeds. Its file is written anew after each, so that none is trained twice."""

    def __init__(self, options: argparse.Namespace, more: list[str]) -> None:
        self._options = options
        self._more = more
        self._about = machine()
        self._lock = threading.Lock()
        self._preset = preset(options.algo, options.env)
        self._wanted = self._preset.get("stop_at") if options.solved is None else options.solved
        self._runs: dict[int, dict[str, Any]] = {}

    def add_from(self, file: Path) -> None:
        """Take the runs of an earlier call, if it trained the same."""
        if not file.exists():
            return
        earlier = json.loads(file.read_text())
        asked = self.result_of([])
        for name in ("command", "preset"):
            if earlier[name] != asked[name]:
                raise SystemExit(f"{file}: {name} is {earlier[name]}, not {asked[name]}")
        self._runs = {run["seed"]: run for run in earlier["runs"]}

    def missing(self) -> list[int]:
        """Return the seeds to train."""
        first = self._options.first_seed
        return [
            each for each in range(first, first + self._options.seeds) if each not in self._runs
        ]

    def add(self, run: dict[str, Any]) -> None:
        """Add the run of a seed, and write the file."""
        with self._lock:
            self._runs[run["seed"]] = run
            if self._options.json is not None:
                self._options.json.write_text(json.dumps(self.result(), indent=2) + "\n")

    def is_solved(self) -> bool:
        """Whether every seed, or with --mean the mean of them, reaches what is wanted."""
        returns = [float(run["eval_return_mean"]) for run in self._runs.values()]
        if self._wanted is None:
            return True
        if self._options.mean:
            return bool(sum(returns) / len(returns) >= self._wanted)
        return bool(min(returns) >= self._wanted)

    def result(self) -> dict[str, Any]:
        """Return the JSON of the runs that there are."""
        return self.result_of([self._runs[seed] for seed in sorted(self._runs)])

    def result_of(self, runs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the JSON of these runs."""
        options, wanted = self._options, self._wanted
        returns = [run["eval_return_mean"] for run in runs]
        solved = sum(wanted is None or each >= wanted for each in returns)
        given = f" --first-seed {options.first_seed}" if options.first_seed else ""
        given += "" if options.solved is None else f" --solved {options.solved:g}"
        given += f" --jobs {options.jobs}" * (options.jobs > 1)
        given += " --mean" * options.mean
        rest = f" -- {' '.join(self._more)}" if self._more else ""
        return {
            "command": f"python -m benchmarks.learning {options.algo} --env {options.env} "
            f"--seeds {options.seeds}{given}{rest}",
            **self._about,
            "preset": self._preset,
            "wanted": wanted,
            "solved": f"{solved} of {len(runs)}",
            "mean_of_seeds": round(sum(returns) / len(returns), 1) if runs else None,
            "slowest_seconds": max((run["seconds"] for run in runs), default=None),
            "runs": runs,
        }


if __name__ == "__main__":
    main()
