"""K4: what a cluster cannot do without is killed: the head, its GCS, the raylet of a driver."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.faults.node_scene import Broken
from benchmarks.faults.ray_clusters import kept
from benchmarks.faults.ray_scene import Run, command_of, try_on
from benchmarks.machines import Machines

_GONE_WITHIN = 5.0


def _end(pids: list[int], what: str) -> None:
    """Kill processes, and prove that they are gone."""
    if not pids:
        raise Broken(f"there is no {what}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_WITHIN
    while any(command_of(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise Broken(f"the {what} did not go: the fault did not land")
        time.sleep(0.005)


def _kill_own(word: str, what: str) -> Any:
    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        _end([pid for pid in run.processes(word) if pid != run.driver.pid], what)
        return {}

    return fault


def own_raylet(seed: int, faulty: bool) -> dict[str, Any]:
    """The raylet of a run's own cluster is killed."""
    return try_on(seed, _kill_own("/raylet/raylet ", "raylet") if faulty else None)


def own_gcs(seed: int, faulty: bool) -> dict[str, Any]:
    """The GCS of a run's own cluster is killed."""
    return try_on(seed, _kill_own("/gcs/gcs_server ", "GCS") if faulty else None)


def _lose_the_head(run: Run, rng: random.Random) -> dict[str, Any]:
    assert run.machines is not None
    before = run.machines.machines[0].pids()
    # In half of the trials the line is cut first: then nothing tells the others that it is gone.
    run.machines.remove(0, unplug=rng.random() < 0.5)
    if not before or any(command_of(pid) for pid in before):
        raise Broken("the head is still there: the fault did not land")
    return {}


def _head_lost(seed: int, faulty: bool, cpus: list[float]) -> dict[str, Any]:
    with Machines(cpus) as machines, kept(f"spare {cpus}", lambda: Machines(cpus)) as spare:
        fault = _lose_the_head if faulty else None
        return try_on(seed, fault, lambda: {"machines": spare}, machines=machines, number=1)


def head_apart(seed: int, faulty: bool) -> dict[str, Any]:
    """The machine of the head is lost; driver and workers are on another one."""
    return _head_lost(seed, faulty, [0, 2])


def head_with_a_worker(seed: int, faulty: bool) -> dict[str, Any]:
    """The machine of the head and of one worker is lost; the driver is on another one."""
    return _head_lost(seed, faulty, [1, 1])


def gcs_back(seed: int, faulty: bool) -> dict[str, Any]:
    """The GCS of a cluster that stores its state is killed, and is back after 1 to 10 s."""

    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        head = machines.machines[0]
        (gcs,) = (pid for pid in head.pids() if "/gcs/gcs_server " in command_of(pid))
        command = Path(f"/proc/{gcs}/cmdline").read_bytes().decode().split("\0")[:-1]
        words = Path(f"/proc/{gcs}/environ").read_bytes().decode().split("\0")
        environment = dict(word.split("=", 1) for word in words if "=" in word)
        _end([gcs], "GCS")
        time.sleep(rng.uniform(1.0, 10.0))
        out = subprocess.DEVNULL
        head.started.append(
            subprocess.Popen(head.within(command), env=environment, stdout=out, stderr=out)
        )
        return {}

    with kept("K4-stored", lambda: Machines([1, 1], stores=True)) as machines:
        use = fault if faulty else None
        return try_on(seed, use, must_go_on=True, machines=machines, number=1, loops=80)


KINDS = {
    "K4-raylet": own_raylet,
    "K4-gcs": own_gcs,
    "K4-head": head_apart,
    "K4-head-worker": head_with_a_worker,
    "K4-stored": gcs_back,
}
