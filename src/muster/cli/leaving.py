"""What Ctrl-C, SIGTERM and SIGHUP do to a command while no run listens to them: it leaves at once.

So it is while Python still imports, where an exception would be a traceback or be swallowed by
somebody's `except:`, and for a second signal, when the first one's good end is too slow for the
user. Nothing has to be tidied up: whatever muster writes is whole at every moment, and its locks
end with the process.
"""

import contextlib
import os
import signal
from types import FrameType


def leave_at_once_on_signals() -> None:
    """Let a signal end the process with code 128 + its number; ignored ones stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # of a terminal that is gone
        if os.isatty(2):  # on a line of its own: a bar may be there
            os.write(2, b"\nmuster: stopped\n")
    os._exit(128 + number)
