"""Another user of the machine tries to get at a run: nothing is opened, and no bit changes.

    python -m benchmarks.faults.second_user --json benchmarks/results/second_user.json

Run it from the repository, as root, on Linux. Each trial is `muster train` as a process of its own.
From its first moment to its last, whatever its processes have made, have open or listen on is found
(exposed.py), and a process of another user (stranger.py) tries to list, read, write, move and
connect to all of it. That the attempts are real is proved by a directory, a file and a socket that
are left open on purpose: there every attempt has to work. The same runs without a stranger go
through the same code; all have to end with the same weights. Exit code 1 if anything was violated.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.exposed import MARK, processes, targets, there
from benchmarks.faults.node_faults import commit
from benchmarks.faults.node_scene import ROOT, SOURCE
from benchmarks.rounds import machine, write

UID = 61_234
"""Of nobody."""
END_WITHIN = 300.0
BETWEEN = 0.2
COMMON = (
    *("--stop-at", "1e9", "--eval-every", "0", "--eval-episodes", "2"),
    *("--checkpoint-every", "8192", "--quiet"),
)
KINDS: dict[str, tuple[str, ...]] = {
    "ray": ("ppo", "--engine", "ray", "--workers", "2", "--env-steps", "122880"),
    "local": ("ppo", "--workers", "2", "--env-steps", "122880"),
    "serial": ("ppo", "--workers", "0", "--env-steps", "122880"),
    "dqn": ("dqn", "--workers", "3", "--env-steps", "3000"),
    "dqn on ray": ("dqn", "--engine", "ray", "--workers", "3", "--env-steps", "3000"),
}
SAME_BITS = {"ray", "local", "serial"}
"""Kinds that promise it; the roles of DQN's nodes run at their own pace."""


class Stranger:
    """The other user."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("stranger.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(script), str(UID)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            preexec_fn=end_with_harness,
        )

    def try_all(self, what: list[tuple[str, str]]) -> dict[str, Any]:
        """Return how much was tried, and what worked."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        got: dict[str, Any] = json.loads(self._process.stdout.readline())
        if got["uid"] != UID:
            raise RuntimeError(f"the stranger is {got['uid']}")
        return got

    def close(self) -> None:
        """Send it away."""
        self._process.communicate()


@contextmanager
def decoys() -> Iterator[list[tuple[str, str]]]:
    """Yield what anybody can list, read, write, move and connect to."""
    with (
        tempfile.TemporaryDirectory(prefix="open-", dir="/tmp") as name,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        place = Path(name)
        place.chmod(0o777)
        (place / "file").write_text("x")
        (place / "file").chmod(0o666)
        (place / "directory").mkdir()
        (place / "directory").chmod(0o777)
        listening.bind(str(place / "socket"))
        listening.listen()
        (place / "socket").chmod(0o777)
        yield [(kind, str(place / kind)) for kind in ("directory", "file", "socket")]


def trial(kind: str, seed: int, faulty: bool) -> dict[str, Any]:
    """Train once, with a stranger about or without."""
    mark = uuid.uuid4().hex
    got: dict[str, Any] = {"kind": kind, "seed": seed, "fault": faulty, "tried": 0, "rounds": 0}
    worked: set[tuple[str, str]] = set()
    kinds: dict[str, set[str]] = {}
    before = there()
    stranger = Stranger()
    with tempfile.TemporaryDirectory(prefix="second-user-") as folder, decoys() as open_things:
        place = Path(folder)
        place.chmod(0o755)  # who shares a directory of runs lets others see it
        run_dir = place / "run"
        algo, *more = KINDS[kind]
        words = [sys.executable, "-m", "muster.cli.main", "train", algo, "CartPole-v1", *more]
        words += [*COMMON, "--seed", str(seed), "--run-dir", str(run_dir)]
        with (place / "output").open("wb") as output:
            driver = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{SOURCE}:{ROOT}", MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_harness,
            )
        try:
            deadline = time.monotonic() + END_WITHIN
            while driver.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not over in {END_WITHIN:g} s")
                found = targets(processes(mark), before, place)
                if faulty and found:
                    answer = stranger.try_all(found)
                    got["tried"] += answer["tried"]
                    got["rounds"] += 1
                    worked |= {tuple(each) for each in answer["worked"]}
                    for name, target in found:
                        kinds.setdefault(name, set()).add(target)
                time.sleep(BETWEEN)
            got["rc"] = driver.returncode
            got["targets"] = {name: len(every) for name, every in sorted(kinds.items())}
            got["worked"] = sorted(worked)[:20]
            on_decoys = stranger.try_all(open_things)
            got["landed"] = len(on_decoys["worked"]) == on_decoys["tried"] > 0
            if driver.returncode:
                got["output"] = (place / "output").read_text(errors="replace")[-1500:]
            else:
                result = json.loads((run_dir / "result.json").read_text())
                got["env_steps"], got["policy"] = result["env_steps"], result["policy_sha256"]
        except TimeoutError as error:
            got["broken"] = str(error)
        finally:
            driver.kill()
            driver.wait()
            stranger.close()
    return got


def violations(got: dict[str, Any], wanted: str | None) -> list[str]:
    """Return what a trial violated, given the weights of the same seed without a stranger."""
    if "broken" in got:
        return [got["broken"]]
    wrong = [f"{attempt} worked on {target}" for attempt, target in got["worked"]]
    if got["rc"]:
        wrong.append(f"exit code {got['rc']}: {got['output']}")
    if not got["landed"]:
        wrong.append("attempts on open things did not work: nothing is proved")
    if got["fault"] and not got["tried"]:
        wrong.append("nothing was tried")
    if wanted is not None and got.get("policy") != wanted:
        wrong.append(f"the weights are {got.get('policy')}, without a stranger {wanted}")
    return wrong


def tried(kind: str, trials: int) -> dict[str, Any]:
    """Return the figures of one kind."""
    each, bad, attempts = [], [], 0
    for seed in range(trials):
        calm = trial(kind, seed, faulty=False)
        got = trial(kind, seed, faulty=True)
        for one in (calm, got):
            wanted = calm.get("policy") if kind in SAME_BITS else None
            one["violations"] = violations(one, wanted)
            bad += one["violations"]
        attempts += got["tried"]
        each += [calm, got]
        print(kind, seed, got["tried"], got["violations"], file=sys.stderr, flush=True)
    return {
        "n": trials,
        "landed": sum(one["landed"] for one in each if one["fault"]),
        "no_fault_trials": trials,
        "attempts": attempts,
        "violations": sum(bool(one["violations"]) for one in each),
        "examples_of_violations": bad[:10],
        "each": each,
    }


def main() -> None:
    """Try all kinds, print what came of them, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Another user tries to get at a run.")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), help="only these")
    parser.add_argument("--trials", type=int, default=5, help="of each kind (5)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("only root can be another user")
    about = machine()
    kinds = {kind: tried(kind, options.trials) for kind in options.kind or list(KINDS)}
    result = {
        "command": f"python -m benchmarks.faults.second_user --trials {options.trials}",
        "commit": commit(),
        "machine": about,
        "violations": sum(kind["violations"] for kind in kinds.values()),
        "kinds": kinds,
    }
    write(result, options.json)
    sys.exit(1 if result["violations"] else 0)


if __name__ == "__main__":
    main()
