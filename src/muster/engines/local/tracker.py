"""Python's resource tracker, where signals to the group of the driver do not reach it.

It is a process that removes the named semaphores and shared memory of those that were killed, such
as an environment's `multiprocessing.Lock`. What is meant to end a whole group would end it, too.
"""

import os
import subprocess
from multiprocessing import resource_tracker, spawn, util
from typing import Any


def tracker() -> int:
    """Return the descriptor through which processes tell the tracker what they have made."""
    known: Any = resource_tracker._resource_tracker
    with known._lock:
        if known._fd is None:
            known._fd, known._pid = _start()
    fd = resource_tracker.getfd()
    assert fd is not None
    return fd


def python_flags() -> list[str]:
    """Return the options of Python itself that this process was started with."""
    untyped: Any = util
    return list(untyped._args_from_interpreter_flags())


def _start() -> tuple[int, int]:
    theirs, ours = os.pipe()
    code = f"from multiprocessing.resource_tracker import main; main({theirs})"
    try:
        process = subprocess.Popen(
            [spawn.get_executable(), *python_flags(), "-c", code],
            pass_fds=[theirs],
            # A node that was killed leaves things: removing them is no news to the user.
            env={**os.environ, "PYTHONWARNINGS": "ignore:resource_tracker"},
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    process.returncode = 0  # Python's own module waits for it, or nobody
    return ours, process.pid
