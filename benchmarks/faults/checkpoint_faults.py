"""Every way to lose a checkpoint that we know, tried on `muster.run` at full size.

    python -m benchmarks.faults.checkpoint_faults --json benchmarks/results/checkpoint_faults.json

Run it from the repository. The names are those of the fault catalogue: D1 killed while saving,
D2 a call fails, D3 the disk is full, D4 short writes, D5 the power fails, D6 truncated, D7 bit
flips, D8 mixed up, D9 files missing or added, D10 malicious, D11 several processes, D12 versions.
The tests in tests/run do the same on a smaller scale. Exit code 1 if anything was violated.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from benchmarks.faults import checkpoint_damage as damage
from benchmarks.faults import checkpoint_kills as kills
from benchmarks.faults import checkpoint_malice as malice
from benchmarks.faults import checkpoint_writes as writes
from benchmarks.faults.scene import Tally

import muster

Trial = Callable[[Path, Tally], object]


def killed(root: Path, tally: Tally, count: int) -> None:
    """D1, with the arm without a fault."""
    kills.no_kill(root, tally, 20)
    kills.kill_while_saving(root, tally, count)


def disk_full(root: Path, tally: Tally) -> None:
    """D3: a limit on the size of files, and a file system that is full."""
    kills.limit_file_size(root, tally, [0, 1, 4096, 100_000, 500_000, 999_999, 10**7])
    tally.figures["tiny_file_system"] = kills.fill_the_disk(root, tally, 50_000)


def damaged(root: Path, tally: Tally) -> None:
    """D6: cut off at every page, and every byte of every header changed."""
    damage.truncate(root, tally)
    damage.change_headers(root, tally)


def malicious(root: Path, tally: Tally) -> None:
    """D10: made to do harm, with right sums."""
    malice.try_all(root, tally)
    malice.fuzz_headers(root, tally, 2000)
    malice.memory_of_a_good_one(root, tally, 256)
    malice.memory_of_a_full_manifest(root, tally)


def several(root: Path, tally: Tally) -> None:
    """D11: two writers, and pruning while others load."""
    kills.two_writers(root, tally, 10)
    kills.prune_while_loading(root, tally, 20.0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as ram:  # where a save takes no time
        kills.prune_while_loading(Path(ram), tally, 20.0)


def plan(options: argparse.Namespace) -> dict[str, Trial]:
    """Return what is to be tried, in order."""
    return {
        "D1 killed while saving": lambda root, tally: killed(root, tally, options.kills),
        "D2 every call fails": writes.fail_each_call,
        "D3 disk full": disk_full,
        "D4 short writes": writes.short_writes,
        "D5 power cut at every call": lambda root, tally: writes.cut_the_power(root, tally, 12),
        "D6 truncated, headers changed": damaged,
        "D7 bit flips": lambda root, tally: damage.flip_bits(root, tally, options.flips),
        "D8 mixed up": damage.swap_files,
        "D9 files missing or added": damage.lose_and_add_files,
        "D10 malicious": malicious,
        "D11 several processes": several,
        "D12 other versions": damage.other_versions,
    }


def main() -> None:
    """Try everything, print the summary, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Try every known fault on checkpoints.")
    parser.add_argument("--kills", type=int, default=60, help="kills that land in a save (60)")
    parser.add_argument(
        "--flips", type=int, default=1000, help="bits to flip, one at a time (1000)"
    )
    parser.add_argument("--only", help="only the faults whose name begins so, such as D7")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    parser.add_argument("--trials", type=Path, help="add one JSON line per trial to this file")
    options = parser.parse_args()
    faults: dict[str, Any] = {}
    for name, trial in plan(options).items():
        if options.only and not name.startswith(options.only):
            continue
        tally = Tally(name, options.trials)
        with tempfile.TemporaryDirectory() as root:
            trial(Path(root), tally)
        faults[name] = tally.report()
        print(f"{name}: {faults[name]['trials']} trials, {faults[name]['violations']} violations,"
              f" {faults[name]['seconds']} s", file=sys.stderr)  # fmt: skip
    # A harness that finds nothing must be seen to find something.
    control = Tally("control")
    with tempfile.TemporaryDirectory() as root:
        kills.kill_while_saving(Path(root), control, 15, naive=True)
    outcomes = [report["outcomes"] for report in faults.values()]
    summary = {
        "command": "python -m benchmarks.faults.checkpoint_faults "
        f"--kills {options.kills} --flips {options.flips}",
        "muster": muster.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "totals": {
            "trials": sum(report["trials"] for report in faults.values()),
            "violations": sum(report["violations"] for report in faults.values()),
            "states_neither_old_nor_new": sum(each.get("neither", 0) for each in outcomes),
            "refused_until_the_next_writer_where_names_cannot_be_exchanged": sum(
                each.get(writes.GIVEN_BACK, 0) for each in outcomes
            ),
            "silent_accepts": sum(each.get("silently accepted", 0) for each in outcomes),
            "executions": sum(report.get("executions", 0) for report in faults.values()),
        },
        "control": {"what": "saves in place, under the same kills", **control.report()},
        "faults": faults,
    }
    text = json.dumps(summary, indent=2, default=str)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    missed = control.counts["violations"] == 0
    raise SystemExit(1 if summary["totals"]["violations"] or missed else 0)  # type: ignore[index]


if __name__ == "__main__":
    main()
