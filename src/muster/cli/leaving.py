"""Ctrl-C, SIGTERM and SIGHUP end a command at once while no run handles them.

That is the case while Python still imports, when an exception would cause a traceback or be
swallowed by some `except:`; and for a second signal, when ending cleanly after the first takes too
long for the user. There is nothing to clean up: every file that muster writes is complete at every
moment, and its locks end with the process.
"""

import atexit
import contextlib
import os
import signal
import sys
from types import FrameType

_GRACE_SECONDS = 10.0
"""Time that threads of an environment or a model have to end when the command is done."""
_UPLOAD_SECONDS = 600.0
"""Time that functions registered with `atexit` have besides."""
_COMMAND = "MUSTER_COMMAND"
"""In the environment of processes that a command starts: its process id."""


def leave_at_once_on_signals() -> None:
    """Let a signal end the process with code 128 + its number; ignored ones stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def name_processes_left() -> None:
    """Make the command name, when it ends, the processes that a user's code left running.

    Such processes are often detached, and keep open a pipe that the command prints to. They are
    found by a variable in their environment.
    """
    os.environ[_COMMAND] = str(os.getpid())
    atexit.register(_name_processes_left, os.getpid())  # registered first, so it runs last


def leave_with(code: int) -> None:
    """Make the process end with this code, even if some of its threads never end."""
    from muster.exiting import leave_within

    leave_within(_GRACE_SECONDS, "the command", code, _UPLOAD_SECONDS)


def _name_processes_left(command: int) -> None:
    from muster.processes import command_of, running, variable_of

    if os.getpid() != command:  # a fork of the command
        return
    server = sys.modules.get("muster.engines.local.forkserver")
    if server is not None:
        server.SERVER.stop()
    left = [pid for pid in running() if variable_of(pid, _COMMAND) == str(command)]
    known = {pid: command_of(pid) for pid in left if pid != command}
    # Python's own helpers end with this process.
    named = [f"{pid} ({what:.60})" for pid, what in known.items() if "multiprocessing" not in what]
    if named:
        with contextlib.suppress(OSError):
            text = f"muster: processes started here are still running: {', '.join(named)}\n"
            os.write(2, text.encode())


def _leave(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed
        if os.isatty(2):  # on a new line: a progress bar may be there
            os.write(2, b"\nmuster: stopped\n")
    os._exit(128 + number)
