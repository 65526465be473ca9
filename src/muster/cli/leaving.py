"""What Ctrl-C and SIGTERM do to a command while no run listens to them: it leaves at once.

So it is while Python still imports, where an exception would be a traceback or be swallowed by
somebody's `except:`, and for a second signal, when the first one's good end is too slow for the
user. Nothing has to be tidied up: whatever muster writes is whole at every moment, and its locks
end with the process.
"""

import os
import signal
from types import FrameType


def leave_at_once_on_signals() -> None:
    """Let SIGINT and SIGTERM end the process with code 130 and 143; ignored ones stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    if os.isatty(2):
        os.write(2, b"\n")  # what the shell says next is not to follow a bar
    os._exit(128 + number)
