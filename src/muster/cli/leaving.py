"""What Ctrl-C, SIGTERM and SIGHUP do to a command while no run listens to them: it leaves at once.

So it is while Python still imports, where an exception would be a traceback or be swallowed by
somebody's `except:`, and for a second signal, when the first one's good end is too slow for the
user. Nothing has to be tidied up: whatever muster writes is whole at every moment, and its locks
end with the process.
"""

import atexit
import contextlib
import os
import signal
import sys
from types import FrameType

_GRACE_SECONDS = 10.0
"""What threads of an environment's or a model's own have for ending when the command is done."""


def leave_at_once_on_signals() -> None:
    """Let a signal end the process with code 128 + its number; ignored ones stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def name_processes_left() -> None:
    """Have the command say at its end which processes a user's code has left running.

    They are often detached, and keep a pipe open that the command prints to.
    """
    from muster.processes import reap_orphans

    reap_orphans()
    atexit.register(_name_processes_left)  # first, so that what others end at exit is gone by then


def leave_with(code: int) -> None:
    """Let the process end with this code, also if threads in it never end."""
    from muster.exiting import leave_within

    leave_within(_GRACE_SECONDS, "the command", code)


def _name_processes_left() -> None:
    from muster.processes import children, command_of

    server = sys.modules.get("muster.engines.local.forkserver")
    if server is not None:
        server.SERVER.stop()
    left = []
    for pid in children():
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                left.append((pid, command_of(pid)))
    # Python's own helpers end with this process.
    named = [f"{pid} ({what:.60})" for pid, what in left if "multiprocessing" not in what]
    if named:
        with contextlib.suppress(OSError):
            text = f"muster: processes that were started here go on: {', '.join(named)}\n"
            os.write(2, text.encode())


def _leave(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # of a terminal that is gone
        if os.isatty(2):  # on a line of its own: a bar may be there
            os.write(2, b"\nmuster: stopped\n")
    os._exit(128 + number)
