"""Ctrl-C, SIGTERM and SIGHUP end a command at once while no run handles them.

That is the case while Python still imports, when an exception would cause a traceback or be
swallowed by some `except:`; and for a second signal, when ending cleanly after the first takes too
long for the user. There is nothing to clean up: every file that muster writes is complete at every
moment, and its locks end with the process.
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
    with contextlib.suppress(OSError):  # the terminal was closed
        if os.isatty(2):  # on a new line: a progress bar may be there
            os.write(2, b"\nmuster: stopped\n")
    os._exit(128 + number)
