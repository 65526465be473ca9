"""Python's resource tracker, started where signals to the driver's process group do not reach it.

The tracker is a process that removes the named semaphores and shared memory of killed processes,
such as an environment's `multiprocessing.Lock`. A signal to the whole group would end it too.
"""

import os
import subprocess
from multiprocessing import resource_tracker, spawn, util
from typing import Any


def tracker() -> int:
    """Return the descriptor through which processes report to the tracker what they have made."""
    known: Any = resource_tracker._resource_tracker
    with known._lock:
        if known._fd is None:
            known._fd, known._pid = _start()
    fd = resource_tracker.getfd()
    assert fd is not None
    return fd


def python_flags() -> list[str]:
    """Return the interpreter options with which this process was started."""
    untyped: Any = util
    return list(untyped._args_from_interpreter_flags())


def _start() -> tuple[int, int]:
    theirs, ours = os.pipe()
    code = f"from multiprocessing.resource_tracker import main; main({theirs})"
    try:
        process = subprocess.Popen(
            [spawn.get_executable(), *python_flags(), "-c", code],
            pass_fds=[theirs],
            # A killed node leaves resources: their removal is no news to the user.
            env={**os.environ, "PYTHONWARNINGS": "ignore:resource_tracker"},
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    process.returncode = 0  # Python's own module waits for the process, or no one does
    return ours, process.pid
