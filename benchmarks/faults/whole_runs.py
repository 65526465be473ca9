"""Whole runs killed at random moments and resumed, with evaluation and checkpoints on.

    reference   the run that nobody disturbs, once for each way
    trial       muster train -> SIGKILL of the driver at a random moment -> muster resume, which is
                killed again in every third trial -> muster resume to the end

What is compared: `policy_sha256`, the counters, every line of `metrics.jsonl` but its seconds, and
that the best policy plays its score. DQN on nodes depends on the moment, so there the counters and
the best policy are. A kill before the first checkpoint leaves nothing to resume, and that is said.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.scene import Tally

import muster
from muster.run import RunDirectory
from muster.workers import evaluate_policy

TIMEOUT = 600.0
EPISODES = 5
PPO = ["ppo", "CartPole-v1", "--env-steps", "81920", "--eval-every", "8192"]
DQN = ["dqn", "CartPole-v1", "--env-steps", "8000", "--eval-every", "1000"]
WAYS = {
    "ppo-serial": [*PPO, "--workers", "0"],
    "ppo-nodes": [*PPO, "--workers", "2"],
    "ppo-ray": [*PPO, "--workers", "2", "--engine", "ray"],
    "dqn-serial": [*DQN, "--workers", "0"],
    "dqn-nodes": [*DQN, "--workers", "3"],
    "dqn-ray": [*DQN, "--workers", "3", "--engine", "ray"],
}
COUNTS = {
    "ppo-serial": 24,
    "ppo-nodes": 24,
    "ppo-ray": 12,
    "dqn-serial": 15,
    "dqn-nodes": 10,
    "dqn-ray": 5,
}
SAME_BITS = ("ppo-serial", "ppo-nodes", "ppo-ray", "dqn-serial")


_MORE = ["--stop-at", "501", "--eval-episodes", str(EPISODES), "--seed", "3"]


def start(place: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command, with what it prints kept beside the run."""
    with open(place.with_suffix(".log"), "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "muster", *words],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_harness,
        )


def train(place: Path, way: str) -> "subprocess.Popen[bytes]":
    """Begin a run."""
    every = WAYS[way][WAYS[way].index("--eval-every") + 1]
    words = [*WAYS[way], *_MORE, "--checkpoint-every", every, "--run-dir", str(place)]
    return start(place, "train", *words)


def outcome_of(place: Path) -> dict[str, Any]:
    """Return what a run that has ended is compared by."""
    run = RunDirectory.open(place)
    result = run.read_result() or {}
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    for line in lines:
        line.pop("seconds")
        line.pop("nodes/replaced", None)
    best = run.best.score()
    again = evaluate_policy(muster.load_policy(place), "CartPole-v1", EPISODES, 3).mean
    return {
        "policy": result.get("policy_sha256"),
        "env_steps": result.get("env_steps"),
        "train_iter": result.get("train_iter"),
        "stopped_by": result.get("stopped_by"),
        "eval": result.get("eval_return_mean"),
        "best": best,
        "best plays": again,
        "lines": lines,
    }


def kill(
    process: "subprocess.Popen[bytes]", place: Path, way: str, rng: random.Random, whole: float
) -> bool:
    """Kill the driver at a moment, if it has not ended by itself; whether the kill landed.

    In one of five trials at any moment since its start, else when it has a checkpoint and has come
    so far: by its own steps, as a clock says little where the machine is busy.

    Args:
        process: The driver.
        place: Its run directory.
        way: Of the run.
        rng: Draws the moment.
        whole: Seconds of a run that nobody disturbs.
    """
    after = rng.uniform(0.0, 1.0) * whole
    if rng.random() < 4 / 5:
        last_step = int(WAYS[way][WAYS[way].index("--env-steps") + 1])
        wanted = rng.uniform(0.1, 0.9) * last_step
        started = time.monotonic()
        while process.poll() is None and time.monotonic() < started + TIMEOUT:
            if steps_so_far(place) >= wanted and _saved(place):
                break
            time.sleep(0.005)
        # Then a little later, so that it is not always right after a line of metrics.
        after = rng.uniform(0.0, 0.02) * (time.monotonic() - started)
    try:
        process.wait(after)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
        return process.returncode == -signal.SIGKILL


def one_trial(
    place: Path, way: str, reference: dict[str, Any], whole: float, rng: random.Random
) -> tuple[str, bool, dict[str, Any]]:
    """Return what came of one trial, whether that is allowed, and details."""
    landed = kill(train(place, way), place, way, rng, whole)
    kills = int(landed)
    if landed and not _saved(place):
        ended = start(place, "resume", str(place))
        code = ended.wait(TIMEOUT)
        said = place.with_suffix(".log").read_text().splitlines()[-3:]
        fine = code == 2 and said[0].startswith("muster: ")
        return "nothing was saved yet, and that is said", fine, {"code": code, "said": said}
    if rng.random() < 1 / 3:
        kills += kill(start(place, "resume", str(place)), place, way, rng, whole)
    code = start(place, "resume", str(place)).wait(TIMEOUT)
    if code:
        log = place.with_suffix(".log").read_text()[-600:]
        return "the resumed run failed", False, {"code": code, "said": log}
    found = outcome_of(place)
    different = [
        name
        for name in (found if way in SAME_BITS else ("stopped_by",))
        if found[name] != reference[name]
    ]
    if found["best"] != found["best plays"]:
        different.append("best")
    details = {"kills": kills, "different": different}
    if different:
        return "another outcome", False, details
    same = "the same bits" if way in SAME_BITS else "it went on to its end"
    return f"{same}, after {kills} kills" if kills else "not killed in time", True, details


def steps_so_far(place: Path) -> int:
    """Return the environment steps of the last whole line of a run's metrics."""
    try:
        whole, _, _ = (place / "metrics.jsonl").read_text().rpartition("\n")
        return int(json.loads(whole.rpartition("\n")[2])["env_step"])
    except (OSError, ValueError, KeyError):
        return 0


def _saved(place: Path) -> bool:
    try:
        return RunDirectory.open(place).checkpoints.last() is not None
    except muster.MusterError:
        return False


def attempt(way: str, count: int, seed: int, trials: Path | None = None) -> dict[str, Any]:
    """Try one way so often and return its report."""
    tally = Tally(way, trials)
    rng = random.Random(f"{seed} {way}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "reference"
        started = time.monotonic()
        if train(place, way).wait(TIMEOUT):
            raise SystemExit(place.with_suffix(".log").read_text())
        whole = time.monotonic() - started
        reference = outcome_of(place)
        twice = Path(folder) / "twice"
        train(twice, way).wait(TIMEOUT)
        same = outcome_of(twice) == reference
        tally.add("no fault: the same", same or way not in SAME_BITS)
        for number in range(count):
            place = Path(folder) / f"trial-{number}"
            outcome, ok, details = one_trial(place, way, reference, whole, rng)
            tally.add(outcome, ok, number=number, **details)
            shutil.rmtree(place, ignore_errors=True)
    landed = sum(n for name, n in tally.counts.items() if "kills" in name or "saved" in name)
    return {**tally.report(), "landed": landed, "reference_seconds": round(whole, 1)}


def main() -> None:
    """Try every way, print a line for each, and write the summary."""
    parser = argparse.ArgumentParser(description="Kill whole runs and resume them.")
    parser.add_argument("--count", type=int, help="trials of each way (60 of PPO, 30 of DQN)")
    parser.add_argument("--only", nargs="*", default=list(WAYS), help="only these ways")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    parser.add_argument("--trials", type=Path, help="add one JSON line per trial to this file")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.json and options.json.exists() and options.only != list(WAYS):
        found = json.loads(options.json.read_text())["ways"]
    for way in options.only:
        found[way] = attempt(way, options.count or COUNTS[way], options.seed, options.trials)
        print(f"{way}: {found[way]['outcomes']}, violations {found[way]['violations']}",
              file=sys.stderr, flush=True)  # fmt: skip
        summary = {
            "command": "python -m benchmarks.faults.whole_runs",
            "muster": muster.__version__,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "trials": sum(each["trials"] for each in found.values()),
            "violations": sum(each["violations"] for each in found.values()),
            "ways": found,
        }
        if options.json:
            options.json.write_text(json.dumps(summary, indent=2, default=str) + "\n")
    raise SystemExit(1 if summary["violations"] else 0)


if __name__ == "__main__":
    main()
