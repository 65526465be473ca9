"""K8: a machine is told that it will be taken away, and is, when its time is up."""

import random
import subprocess
import sys
import time
from typing import Any

from benchmarks.faults.node_scene import Broken
from benchmarks.faults.ray_machines import nodes_on
from benchmarks.faults.ray_scene import Run, command_of, try_on
from benchmarks.machines import Machines

_NOTICE = 10
"""Seconds from the notice to the end of the machine."""
_LOOPS = 400
"""Enough for the run to be there when that time is up."""
_PREEMPTED = "DRAIN_NODE_REASON_PREEMPTION"
_STATE = """
import sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
print(*(node.node_id.hex() for node in nodes
        if node.node_manager_address == sys.argv[2] and node.state == 0))
"""


def _drain(machines: Machines, number: int) -> None:
    """Tell Ray that a machine will be gone soon, as a cloud does."""
    where = machines.machines[number].address
    command = [sys.executable, "-c", _STATE, machines.address, where]
    asked = machines.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    node = asked.communicate(timeout=60)[0].split()[-1]
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node"]
    command += ["--address", machines.address, "--node-id", node, "--reason", _PREEMPTED]
    command += ["--reason-message", "a trial", "--deadline-remaining-seconds", str(_NOTICE)]
    drain = machines.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = drain.communicate(timeout=60)
    if drain.returncode or "rejected" in said.lower():
        raise Broken(f"Ray did not take the notice: {said[-500:]}")


def drained(seed: int, faulty: bool) -> dict[str, Any]:
    """A worker's machine is drained for preemption, and taken away 10 s later; there is a spare."""

    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        number = next(n for n in machines.machines if n and nodes_on(machines, n))
        before = nodes_on(machines, number)
        _drain(machines, number)
        started = time.monotonic()
        while time.monotonic() - started < _NOTICE and run.driver.poll() is None:
            time.sleep(0.05)  # what the caller of a drain promises is to wait so long
        if run.driver.poll() is not None:
            raise Broken("the run was over before the machine was taken away")
        machines.remove(number)
        if any(command_of(pid) for pid in before):
            raise Broken("the fault did not land")
        return {}

    with Machines([0, 1, 1, 1]) as machines:
        return try_on(seed, fault if faulty else None, machines=machines, loops=_LOOPS)


KINDS = {"K8": drained}
