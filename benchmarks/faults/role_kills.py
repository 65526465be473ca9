"""Learner, evaluator and actors of a run killed: what is lost, and does it go on?

    python -m benchmarks.faults.role_kills --json benchmarks/results/role_kills.json
    python -m benchmarks.faults.role_kills --algo sac --role learner --count 2 --jobs 2

Each trial is `muster train ALGO` on four nodes, in environments whose steps are numbered. One node
gets SIGKILL when the run has come so far; that it landed is proved by its process having gone and
the run having replaced a node. Then, by the replay of the last checkpoint: no step is there twice;
when an actor or the evaluator was killed, the steps of each environment are there without a gap
(what an actor had not sent when it died is not counted as done by anybody); `env_steps` is what was
stored; and as many samples were drawn for each insert as was asked for. A learner goes on from its
last checkpoint: what came after it is gone, from replay and from the counters, and that is one gap
in the steps of each environment; what came before it is there. Where unrolls or gradients are
learnt from in place of replay, `env_steps` is what all updates were made of, to the step, and
neither steps nor updates ever go back in the metrics. Trials without a kill go through the same
code. With --json, what the file has of other algorithms and roles is kept. Exit code 1 if anything
was violated.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.node_scene import ROOT
from benchmarks.faults.scene import Tally
from benchmarks.faults.whole_runs import steps_so_far
from benchmarks.rounds import machine, write

from muster.run import RunDirectory

ROLES = {"learner": 0, "evaluator": 1, "actor": 2}
STEPS, START, NUM_ENVS, NODES = 12_000, 500, 2, 4
WITHIN = 300.0
RATIO = 0.5
IN_ONE_UPDATE = 8 * NUM_ENVS
"""Environment steps, where updates are made of a worker's last steps."""
REPLAY = {
    "sac": ["sac", "numbered_env:Numbered-v0", "--updates-per-step", str(RATIO)],
    "dqn": [
        *("dqn", "numbered_env:NumberedDiscrete-v0"),
        *("--train-every", "32", "--updates-per-train", "16"),
    ],
    "apex": [
        *("apex", "numbered_env:NumberedDiscrete-v0"),
        *("--train-every", "32", "--updates-per-train", "16"),
    ],
}
IN_PASSING = {
    "impala": ["impala", "numbered_env:NumberedDiscrete-v0", "--unroll", "8", "--max-lag", "4"],
    "a3c": ["a3c", "numbered_env:NumberedDiscrete-v0", "--rollout", "8"],
}
ALGOS = REPLAY | IN_PASSING
OPTIONS = {
    "--workers": NODES,
    "--num-envs": NUM_ENVS,
    "--hidden": 16,
    "--eval-episodes": 2,
}
OF_REPLAY = {
    "--env-steps": STEPS,
    "--eval-every": 2_000,
    "--checkpoint-every": 1_500,
    "--learning-starts": START,
    "--batch-size": 32,
    "--buffer-size": 2 * STEPS,
}
OF_OTHERS = {
    "--env-steps": 10 * STEPS,
    "--eval-every": 20_000,
    "--checkpoint-every": 15_000,
}


def start(algo: str, place: Path, seed: int) -> "subprocess.Popen[str]":
    """Start a run."""
    words = [*ALGOS[algo], "--run-dir", str(place), "--seed", str(seed)]
    for name, value in (OPTIONS | (OF_REPLAY if algo in REPLAY else OF_OTHERS)).items():
        words += [name, str(value)]
    return subprocess.Popen(
        [sys.executable, "-m", "muster", "train", *words],
        cwd=ROOT / "benchmarks" / "faults",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=end_with_harness,
    )


def nodes_of(driver: int) -> list[int]:
    """Return the processes of the nodes, in the order of their start."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    servers = {pid for pid, parent in parents.items() if parent == driver}
    return sorted(pid for pid, parent in parents.items() if parent in servers)


def one_trial(algo: str, role: str | None, place: Path, rng: random.Random) -> list[str]:
    """Return what was violated in one trial."""
    run = start(algo, place, rng.randrange(2**31))
    wanted = rng.uniform(0.2, 0.7) * STEPS * (1 if algo in REPLAY else 10)
    deadline = time.monotonic() + WITHIN
    while run.poll() is None and steps_so_far(place) < wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    nodes = nodes_of(run.pid)
    if role is not None:
        if run.poll() is not None or len(nodes) != NODES:
            run.kill()
            return [f"there are {len(nodes)} nodes: {run.communicate()[0][-400:]}"]
        os.kill(nodes[ROLES[role]], signal.SIGKILL)
    try:
        said, _ = run.communicate(timeout=WITHIN)
    except subprocess.TimeoutExpired:
        run.kill()
        return [f"it did not end in {WITHIN:g} s: {run.communicate()[0][-400:]}"]
    if run.returncode:
        return [f"it ended with {run.returncode}: {said[-400:]}"]
    wrong = judged(place, role)
    return wrong + (judged_replay if algo in REPLAY else judged_in_passing)(place, role)


def judged(place: Path, role: str | None) -> list[str]:
    """Look at what every run that has ended has left."""
    lines = lines_of(place)
    replaced = max((line.get("nodes/replaced", 0) for line in lines), default=0)
    return [f"{replaced} nodes were replaced"] if replaced != (role is not None) else []


def lines_of(place: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run."""
    text = RunDirectory.open(place).metrics.read_text()
    return [json.loads(line) for line in text.splitlines()]


def judged_in_passing(place: Path, role: str | None) -> list[str]:
    """Look at the counters of a run whose updates are made of a worker's last steps."""
    result, wrong = RunDirectory.open(place).read_result() or {}, []
    if result["env_steps"] != result["train_iter"] * IN_ONE_UPDATE:
        wrong.append(f"{result['train_iter']} updates of {result['env_steps']} steps")
    if result["env_steps"] < OF_OTHERS["--env-steps"]:
        wrong.append(f"it ended after {result['env_steps']} steps")
    for name in ("env_step", "train_iter"):
        numbers = [line[name] for line in lines_of(place) if "eval/return" not in line]
        if any(after < before for before, after in pairwise(numbers)):
            wrong.append(f"{name} went back")
    return wrong


def judged_replay(place: Path, role: str | None) -> list[str]:
    """Look at the replay that a run has left."""
    run = RunDirectory.open(place)
    result, wrong = run.read_result() or {}, []
    replay = run.checkpoints.load().parts["replay"]
    seen = replay["obs"][: replay["action"].shape[0]].reshape(-1, 2).astype(int)
    numbers = defaultdict(list)
    for name, number in seen.tolist():
        numbers[name].append(number)
    for name, found in numbers.items():
        found.sort()
        apart = [after - before for before, after in pairwise(found)]
        if 0 in apart:
            wrong.append(f"environment {name} has steps twice")
        gaps = [each - 1 for each in apart if each > 1]
        if len(gaps) > (role == "learner"):
            wrong.append(f"{gaps} steps of environment {name} are missing")
        if found[0]:
            wrong.append(f"environment {name} begins with step {found[0]}")
    if len(seen) != result["env_steps"]:
        wrong.append(f"{len(seen)} steps are stored and {result['env_steps']} are counted")
    drawn = result["train_iter"] / (result["env_steps"] - START)
    if abs(drawn / RATIO - 1) > 0.02:
        wrong.append(f"{drawn:.3f} updates per step, and {RATIO} were asked for")
    if result["env_steps"] < STEPS:
        wrong.append(f"it ended after {result['env_steps']} steps")
    return wrong


def attempt(
    name: str, algo: str, role: str | None, count: int, seed: int, jobs: int
) -> dict[str, Any]:
    """Try one role so many times, and print a line for each trial."""
    tally = Tally(name)

    def try_one(number: int) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(f"{seed} {name} {number}")
            return one_trial(algo, role, Path(folder) / "run", rng)

    # A run ends with the thread that started it: these live as long as the pool.
    with ThreadPoolExecutor(jobs) as pool:
        for number, wrong in enumerate(pool.map(try_one, range(count))):
            tally.add(wrong[0] if wrong else "as promised", not wrong, number=number)
            print(name, number, wrong or "as promised", file=sys.stderr, flush=True)
    return tally.report()


def main() -> None:
    """Try every role, print a line for each trial, and write the summary."""
    parser = argparse.ArgumentParser(description="Kill the roles of runs with replay.")
    parser.add_argument("--algo", nargs="*", default=list(ALGOS), help="only these")
    parser.add_argument("--role", nargs="*", default=list(ROLES), help="only these")
    parser.add_argument("--count", type=int, default=20, help="trials of each role (20)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments")
    parser.add_argument("--jobs", type=int, default=1, help="so many trials at a time (1)")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())["roles"]
    for algo in options.algo:
        for role, count in [(None, 3), *((role, options.count) for role in options.role)]:
            name = f"{algo} {role or 'no kill'}"
            found[name] = attempt(name, algo, role, count, options.seed, options.jobs)
    violations = sum(each["violations"] for each in found.values())
    command = "python -m benchmarks.faults.role_kills"
    about = {"command": command, **machine(), "violations": violations}
    write({**about, "roles": found}, options.json)
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
