"""Facts about processes (Linux): parents, groups, environment, command, start time.

A process can ask the kernel to kill it when its parent dies, and to become the parent of orphaned
descendants.
"""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

NODE_PROCESS = "MUSTER_NODE_PROCESS"
"""Environment variable of the processes that a node starts: the node's process id."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def end_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies; exit if the parent is already dead.

    Args:
        parent: The process id of the parent.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def reap_orphans() -> None:
    """Become the parent of processes that descendants leave running."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the ids of this process's children, including those that have exited."""
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = Path("/proc", name, "stat").read_text(errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == me:
                    found.append(int(name))
    return found


def running() -> list[int]:
    """Return all processes of this machine that have not ended, as far as they can be seen."""
    found = []
    with contextlib.suppress(FileNotFoundError):  # of a system without /proc
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, IndexError):
                stat = Path("/proc", name, "stat").read_text(errors="replace")
                if name.isdigit() and stat.rpartition(")")[2].split()[0] not in "ZX":
                    found.append(int(name))
    return found


def group_of(pid: int) -> int | None:
    """Return the process group of a process; None if the process does not exist."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def variable_of(pid: int, name: str) -> str | None:
    """Return a variable of a process's initial environment; None if it is not set."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(f"{name}=".encode()):
                return entry.partition(b"=")[2].decode(errors="replace")
    return None


def command_of(pid: int) -> str:
    """Return the command of a process, as far as known."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
        if words:
            return words.decode(errors="replace")[:200]
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return "a process that has ended"


def start_of(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it does not exist.

    The system reuses process ids; id and start time together identify a process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[19])


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
