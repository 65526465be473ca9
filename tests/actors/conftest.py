"""One private Ray cluster for all tests of building blocks."""

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")


def processes_of_ray():
    """Return the processes below this one that belong to Ray."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_text()[:200]
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    below, found = {os.getpid()}, {}
    while new := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= new
    for pid in below - {os.getpid()}:
        if "ray" in names.get(pid, ""):
            found[pid] = names[pid]
    return found


@pytest.fixture(scope="session")
def ray():
    """Be connected to a cluster of six CPUs; afterwards none of its processes is left."""
    from muster.actors import cluster

    with cluster(num_cpus=6) as connected:
        yield connected
    deadline = time.monotonic() + 10
    while processes_of_ray() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of_ray() == {}
