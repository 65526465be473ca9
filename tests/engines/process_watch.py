"""Which processes live below another, and waiting until something holds."""

import os
import time
from contextlib import suppress
from pathlib import Path

HELPERS = (b"muster.engines.local.forked", b"multiprocessing.resource_tracker")


def parents():
    """Return the parent of every process that lives."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    found[int(entry.name)] = int(parent)
    return found


def descendants(of=None):
    """Return live processes below one and what they run, without Python's own two helpers.

    What the fork server has forked looks like it; but only the helper is a direct child.
    """
    of = os.getpid() if of is None else of
    parent_of = parents()
    found = {}
    for pid in parent_of:
        chain = pid
        while chain in parent_of and chain != of:
            chain = parent_of[chain]
        if chain != of or pid == of:
            continue
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if parent_of[pid] != of or not any(name in command for name in HELPERS):
                found[pid] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def slowdown():
    """How many times as long things take here as on a machine that does nothing else."""
    return max(1.0, 2 * os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def eventually(condition, seconds=5.0):
    """Whether a condition comes true in time, which is more where others have the cores."""
    deadline = time.monotonic() + seconds * slowdown()
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
