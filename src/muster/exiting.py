"""Ends a process although threads in it do not end."""

import os
import sys
import threading
import time


def leave_within(seconds: float, name: str, code: int = 0, more_seconds: float = 0.0) -> None:
    """Exit after this time, whatever still runs: Python itself waits for threads forever.

    Args:
        seconds: Time that threads have to end.
        name: Of the process, for the message.
        code: Exit code.
        more_seconds: Time that functions registered with `atexit` have besides, for an upload say.
    """

    def leave() -> None:
        time.sleep(seconds)
        threads, waited = _threads(), seconds
        if not threads:
            time.sleep(more_seconds)
            waited += more_seconds
        try:
            print(
                f"muster: {name} was ended {waited:g} s after it had finished, because of "
                + (f"its thread {threads}" if threads else "something that is not a thread"),
                file=sys.stderr,
                flush=True,
            )
            sys.stdout.flush()
        finally:  # also if nobody is there to read it
            os._exit(code)

    threading.Thread(target=leave, name="muster-leave", daemon=True).start()


def _threads() -> str:
    """Return the names of the threads that keep Python from exiting."""
    return ", ".join(
        repr(each.name)
        for each in threading.enumerate()
        if not each.daemon and each is not threading.main_thread()
    )
