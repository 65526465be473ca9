"""Has muster become slower? An earlier revision beside this one, in turns, on one machine.

    python -m benchmarks.revisions --base 750bef8 --json benchmarks/results/revisions.json

PPO with 0 and 2 workers, as in `peers/ppo.py`: sources and trials of each revision, with the same
Python and packages. A run before the first round compiles the kernels of the earlier revision. A
ratio to another library that was committed on one kind of processor says little on another kind;
this one says whether the code is the reason. Ratios are taken within a round. Exit code 1 if the
median of one is below 0.95.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.running import ROOT, Timed, compared, finish, race
from benchmarks.rounds import machine

LEAST = 0.95
TRIALS = {
    "ppo, 0 workers": ["-m", "benchmarks.peers.ppo_one", "muster", "matched", "--workers", "0"],
    "ppo, 2 workers": ["-m", "benchmarks.peers.ppo_one", "muster", "matched", "--workers", "2"],
}


def main() -> None:
    """Time both revisions, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="the earlier revision")
    parser.add_argument("--rounds", type=int, default=5, help="to take the median over (5)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(earlier), options.base], check=True)
        try:
            lanes = {
                f"{name}, {when}": [*_in(tree), sys.executable, *words]
                for name, words in TRIALS.items()
                for when, tree in (("base", earlier), ("now", ROOT))
            }
            subprocess.run(next(iter(lanes.values())), capture_output=True, timeout=600)
            raced = race(lambda _: lanes, options.rounds, _speed)
        finally:
            subprocess.run([*git, "remove", "--force", str(earlier)], check=True)
    ratios = {
        f"{name}, now / base": compared(
            [_speed(each[f"{name}, now"]) / _speed(each[f"{name}, base"]) for each in raced.rounds],
            LEAST,
        )
        for name in TRIALS
    }
    result = {
        "command": f"python -m benchmarks.revisions --base {options.base} "
        f"--rounds {options.rounds}",
        **machine(),
        "cpu_share": raced.cpu_share,
        "ratios": ratios,
        "medians": raced.medians,
    }
    finish(result, ratios, options.json)


def _in(tree: Path) -> list[str]:
    """Return the beginning of a command that runs in a checkout, with its sources."""
    return ["env", "-C", str(tree), f"PYTHONPATH={tree / 'src'}:{tree}"]


def _speed(timed: Timed) -> float:
    return float(timed["steps_per_s"])


if __name__ == "__main__":
    main()
