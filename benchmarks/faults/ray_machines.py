"""A machine lost in mid-training and another one added: is the result the same to the bit?

    python -m benchmarks.faults.ray_machines --json benchmarks/results/ray_machines.json

Run it from the repository, as root, on Linux: machines are network namespaces with addresses of
their own (benchmarks/machines.py). A Ray cluster has three machines of one CPU, on two of which
`muster train ppo CartPole-v1 --engine ray --workers 2` trains. At a seeded moment all that runs on
the machine of one worker is killed, and a new machine is added. That it landed is proved by its
processes having gone and the worker having come up elsewhere. The run has to end by itself with
exactly the steps and the weights of the serial run of its seed. Beside it lives a plain Ray actor
with max_restarts=-1: how long Ray itself takes to have it again. The same trials without a fault
go through the same code. Exit code 1 if anything was violated.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.node_faults import commit
from benchmarks.faults.node_scene import ROOT
from benchmarks.machines import Machines
from benchmarks.rounds import machine, summary, write

STEPS = 60 * 8 * 128
OPTIONS = (
    *("--env-steps", str(STEPS), "--stop-at", "1e9", "--eval-every", "0"),
    *("--eval-episodes", "2", "--checkpoint-every", "0", "--quiet"),
)
START_WITHIN = 180.0
RECOVER_WITHIN = 180.0
PLAIN_WITHIN = 45.0
END_WITHIN = 400.0
NODE = b"muster.engines.ray.process"

PLAIN = """
import os, sys, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
address, where, log = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
node = next(n["NodeID"] for n in ray.nodes() if n["NodeManagerAddress"] == where and n["Alive"])
@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Plain:
    def pid(self): return os.getpid()
strategy = NodeAffinitySchedulingStrategy(node, soft=True)
plain = Plain.options(scheduling_strategy=strategy).remote()
last = None
while True:
    pid = ray.get(plain.pid.remote())
    if pid != last:
        print(time.time(), pid, file=open(log, "a"), flush=True)
        last = pid
    time.sleep(0.02)
"""


class Broken(Exception):
    """A promise was not kept, or the trial did not get where it had to."""


def train(seed: int, place: Path, *more: str) -> list[str]:
    """Return the command of one run."""
    command = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1"]
    return [*command, "--seed", str(seed), "--run-dir", str(place), *OPTIONS, *more]


def result_of(place: Path) -> dict[str, Any]:
    """Return what a run came to."""
    found: dict[str, Any] = json.loads((place / "result.json").read_text())
    return found


def serial(seed: int, place: Path) -> str:
    """Return the weights of the serial run of a seed."""
    command = train(seed, place, "--workers", "0")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=END_WITHIN, cwd=ROOT)
    return str(result_of(place)["policy_sha256"])


def lines(place: Path) -> int:
    """Return how many lines of metrics a run has written."""
    with suppress(OSError):
        return (place / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


def nodes_on(machines: Machines, number: int) -> list[int]:
    """Return the processes of nodes that run on a machine."""
    return [pid for pid in machines.machines[number].pids() if is_node(pid)]


def is_node(pid: int) -> bool:
    """Whether this is a node's process, and alive: one that ended has no command any more."""
    with suppress(OSError):
        return NODE in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def wait(until: Any, seconds: float, what: str, process: "subprocess.Popen[str]") -> float:
    """Wait until something holds, and return how long it took."""
    started = time.monotonic()
    while not until():
        if process.poll() is not None and not until():
            raise Broken(f"the run ended before {what}: exit code {process.returncode}")
        if time.monotonic() - started > seconds:
            raise Broken(f"{what}: not in {seconds:g} s")
        time.sleep(0.01)
    return time.monotonic() - started


def came_back(log: Path, lost_at: float) -> float | None:
    """Return after how many seconds Ray had its actor again; None if it had not in time."""
    while len(log.read_text().splitlines()) < 2:
        if time.time() - lost_at > PLAIN_WITHIN:
            return None
        time.sleep(0.05)
    return round(float(log.read_text().splitlines()[1].split()[0]) - lost_at, 2)


def trial(machines: Machines, seed: int, wanted: str, place: Path, fault: bool) -> dict[str, Any]:
    """Train once, with a machine that is lost or without."""
    rng = random.Random(seed)
    more = ("--engine", "ray", "--address", machines.address, "--workers", "2")
    log = (place.parent / f"{place.name}.log").open("w")
    run = machines.start(train(seed, place, *more), cwd=ROOT, stdout=log, stderr=log)
    found: dict[str, Any] = {"seed": seed, "fault": fault}
    plain: subprocess.Popen[str] | None = None
    try:
        wait(lambda: lines(place) > 0, START_WITHIN, "training began", run)
        if fault:
            lost = next(n for n in machines.machines if n and nodes_on(machines, n))
            plain_log = place.parent / f"{place.name}.plain"
            where = machines.machines[lost].address
            command = [sys.executable, "-c", PLAIN, machines.address, where, str(plain_log)]
            plain = machines.start(command, stdout=log, stderr=log)
            wait(plain_log.exists, START_WITHIN, "plain Ray began", plain)
            at = lines(place) + rng.randrange(1, 4)
            wait(lambda: lines(place) >= at, START_WITHIN, "the moment of the fault", run)
            time.sleep(rng.random() * 0.2)  # anywhere in a loop
            killed, before = nodes_on(machines, lost), lines(place)
            if not killed:
                raise Broken("there was no worker on the machine to be lost")
            wall, started = time.time(), time.monotonic()
            machines.remove(lost)
            if any(is_node(pid) for pid in killed):
                raise Broken("the fault did not land")
            wait(lambda: lines(place) > before + 1, RECOVER_WITHIN, "training went on", run)
            found["recovered_s"] = round(time.monotonic() - started, 2)
            found["at_line"] = before
            machines.add(1)
            found["added"] = True
            found["plain_ray_s"] = came_back(plain_log, wall)
        if run.wait(END_WITHIN):
            raise Broken(f"exit code {run.returncode}")
        result = result_of(place)
        found.update(env_steps=result["env_steps"], same_bits=result["policy_sha256"] == wanted)
        if result["env_steps"] != STEPS or not found["same_bits"]:
            raise Broken(f"{result['env_steps']} of {STEPS} steps, same bits: {found['same_bits']}")
        left = [pid for number in machines.machines for pid in nodes_on(machines, number)]
        if left:
            raise Broken(f"{len(left)} nodes are left")
    except Broken as broken:
        found["violation"] = str(broken)
    finally:
        for process in (run, plain):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        log.close()
    return found


def main() -> None:
    """Do all trials and write what came of them."""
    parser = argparse.ArgumentParser(description="Machines lost and added in mid-training.")
    parser.add_argument("--trials", type=int, default=20, help="with a fault (20)")
    parser.add_argument("--calm", type=int, default=3, help="without one (3)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    about = machine()
    trials: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Machines([1, 1, 1]) as machines:
        place = Path(folder)
        for number in range(options.trials + options.calm):
            seed, fault = number, number >= options.calm
            wanted = serial(seed, place / f"serial{seed}")
            found = trial(machines, seed, wanted, place / f"run{seed}", fault)
            trials.append(found)
            print(found, file=sys.stderr, flush=True)
            while len(machines.machines) < 3:  # a trial that was violated had not got so far
                machines.add(1)
        real = machines.are_real
    lost = [each for each in trials if "recovered_s" in each]
    plain = [each["plain_ray_s"] for each in lost if each.get("plain_ray_s") is not None]
    violations = [each for each in trials if "violation" in each]
    result = {
        "command": f"python -m benchmarks.faults.ray_machines --trials {options.trials}",
        "commit": commit(),
        "machine": about,
        "own_addresses": real,
        "trials": len(trials),
        "machines_lost": len(lost),
        "violations": len(violations),
        "recovered_s": summary([each["recovered_s"] for each in lost]) if lost else None,
        "plain_ray_s": summary(plain) if plain else None,
        "plain_ray_not_back_in_45_s": len(lost) - len(plain),
        "each": trials,
    }
    write(result, options.json)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
