"""What the system knows of processes (Linux): who comes from whom, and what each of them runs.

A process can ask the kernel to end it with its parent, and to be the parent of the orphans that its
descendants leave.
"""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

NODE_PROCESS = "MUSTER_NODE_PROCESS"
"""In the environment of what a node starts: the node's process id."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def end_with(parent: int) -> None:
    """Make the kernel end this process with its parent; exit at once if that has ended.

    Args:
        parent: The process that it is of.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def reap_orphans() -> None:
    """Adopt the processes that descendants leave running, as children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the processes whose parent this one is, those that have ended included."""
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = Path("/proc", name, "stat").read_text(errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == me:
                    found.append(int(name))
    return found


def group_of(pid: int) -> int | None:
    """Return the process group that a process is in; None if there is no such process."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def variable_of(pid: int, name: str) -> str | None:
    """Return a variable that a process was started with; None if it has none of this name."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(f"{name}=".encode()):
                return entry.partition(b"=")[2].decode(errors="replace")
    return None


def command_of(pid: int) -> str:
    """Return what a process runs, as far as that is known."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
        if words:
            return words.decode(errors="replace")[:200]
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return "a process that has ended"


def start_of(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if there is none.

    A process id may belong to another process by now; id and start together do not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[19])


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
