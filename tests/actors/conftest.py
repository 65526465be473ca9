"""One private Ray cluster for the tests of building blocks in a module."""

import _thread
import os
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

LONGEST = float(os.environ.get("MUSTER_TEST_SECONDS", 400))
"""Seconds that a test here may take."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Fail a test that waits for ever: while Ray waits, it lets nothing through but Ctrl-C."""
    late = threading.Event()

    def interrupt():
        late.set()
        _thread.interrupt_main()

    timer = threading.Timer(LONGEST, interrupt)
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    except KeyboardInterrupt as error:
        if not late.is_set():
            raise
        raise TimeoutError(f"the test took longer than {LONGEST:g} s") from error
    finally:
        timer.cancel()


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


@pytest.fixture(scope="module")
def ray():
    """Be connected to a cluster of six CPUs; afterwards none of its processes is left."""
    from muster.actors import cluster

    before = processes_of_ray().keys()  # another file's cluster may be there for all tests

    def left():
        return {pid: name for pid, name in processes_of_ray().items() if pid not in before}

    with cluster(num_cpus=6) as connected:
        yield connected
    deadline = time.monotonic() + 10
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left() == {}
