"""Ends every process of a Ray cluster of our own, even if its driver was killed.

    python reaper.py DRIVER DIRECTORY     waits for the exit of DRIVER, ends and removes everything

Ray's servers die with their driver, and workers with their server. But two agents of Ray 2.60 live
on for over a minute after the driver was killed. All processes of the cluster have files open for
writing in its directory, and are identified by them: also workers, and processes that workers
started. The driver's own files do not count, because processes that the driver forks have them
too, without belonging to the cluster. Imports nothing of muster, so that it can run as a script.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

_POLL = 0.25
_LOOK_AGAIN = 0.05
_GIVE_UP = 10.0


def end_all(driver: int, directory: str) -> None:
    """Kill every process that writes into a directory, until two scans find none; then remove it.

    Args:
        driver: Process id of the driver, which is spared, like processes that only have its files.
        directory: The cluster's directory, without symbolic links in its path.
    """
    until = time.monotonic() + _GIVE_UP
    quiet = 0
    while quiet < 2 and time.monotonic() < until:
        quiet += 1
        for pid in _writers(driver, directory):
            quiet = 0
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN)
    shutil.rmtree(directory, ignore_errors=True)


def _writers(driver: int, directory: str) -> Iterator[int]:
    """Yield processes with a file open for writing there. Readers, such as `tail`, are spared."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (driver, os.getpid()):
            with contextlib.suppress(OSError):
                if any(
                    _writes(driver, name, fd, directory) for fd in os.listdir(f"/proc/{name}/fd")
                ):
                    yield int(name)


def _writes(driver: int, pid: str, fd: str, directory: str) -> bool:
    try:
        file = os.readlink(f"/proc/{pid}/fd/{fd}")
        if not file.startswith(f"{directory}/") or file.endswith(f"_{driver}.log"):
            return False
        with open(f"/proc/{pid}/fdinfo/{fd}") as lines:
            flags = next(line for line in lines if line.startswith("flags:"))
    except (OSError, StopIteration):
        return False
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _main(driver: int, directory: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the driver; this process then cleans up
    while os.getppid() == driver:
        time.sleep(_POLL)
    end_all(driver, directory)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
