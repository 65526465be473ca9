"""K8: a machine is told that it will be taken away, and is, when its time is up."""

import random
import subprocess
import sys
import time
from typing import Any

from benchmarks.faults.node_scene import Broken
from benchmarks.faults.ray_clusters import kept
from benchmarks.faults.ray_machines import nodes_on
from benchmarks.faults.ray_scene import Run, command_of, try_on
from benchmarks.machines import Machines

_NOTICE = 5
"""Seconds from the notice to the end of the machine."""
_LOOPS = 160
"""Enough for the run to be there when that time is up."""
_PREEMPTED = "DRAIN_NODE_REASON_PREEMPTION"
_IDS = """
import sys
from ray._raylet import GcsClient
for node in GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values():
    print(node.node_manager_address, node.node_id.hex())
"""


def _ids(machines: Machines) -> dict[str, str]:
    """Return what Ray calls each machine, by its address."""
    asked = machines.start([sys.executable, "-c", _IDS, machines.address], stdout=subprocess.PIPE)
    return dict(line.split() for line in asked.communicate(timeout=60)[0].splitlines())


def _drain(machines: Machines, node: str) -> None:
    """Tell Ray that a machine will be gone soon, as a cloud does."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node"]
    command += ["--address", machines.address, "--node-id", node, "--reason", _PREEMPTED]
    command += ["--reason-message", "a trial", "--deadline-remaining-seconds", str(_NOTICE)]
    drain = machines.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = drain.communicate(timeout=60)
    if drain.returncode or "rejected" in said.lower():
        raise Broken(f"Ray did not take the notice: {said[-500:]}")


def drained(seed: int, faulty: bool) -> dict[str, Any]:
    """A worker's machine is drained for preemption, and taken away 5 s later; there is a spare."""

    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        number = next(n for n in machines.machines if n and nodes_on(machines, n))
        before = nodes_on(machines, number)
        _drain(machines, ids[machines.machines[number].address])
        started = time.monotonic()
        while time.monotonic() - started < _NOTICE and run.driver.poll() is None:
            time.sleep(0.05)  # a machine that is drained is there for so long
        if run.driver.poll() is not None:
            raise Broken("the run was over before the machine was taken away")
        at = time.monotonic()
        machines.remove(number)
        if any(command_of(pid) for pid in before):
            raise Broken("the fault did not land")
        return {"at": at}

    with kept("K8", lambda: Machines([0, 1, 1, 1])) as machines:
        while len(machines.machines) < 4:  # in place of the one that the trial before took away
            machines.add(1)
        ids = _ids(machines)
        use = fault if faulty else None
        return try_on(seed, use, must_go_on=True, machines=machines, loops=_LOOPS)


KINDS = {"K8": drained}
