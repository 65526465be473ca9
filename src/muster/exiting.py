"""Ends a process although threads in it do not end."""

import os
import sys
import threading
import time


def leave_within(seconds: float, name: str, code: int = 0) -> None:
    """Exit after this time, whatever still runs: Python itself waits for threads forever.

    Args:
        seconds: How long threads may take to end.
        name: Of the process, for the message.
        code: Exit code.
    """

    def leave() -> None:
        time.sleep(seconds)
        threads = ", ".join(
            repr(each.name)
            for each in threading.enumerate()
            if not each.daemon and each is not threading.main_thread()
        )
        print(
            f"muster: {name} is done, and was ended with what still ran in it after {seconds:g} s: "
            + (f"its thread {threads}" if threads else "something that is no thread of Python's"),
            file=sys.stderr,
            flush=True,
        )
        os._exit(code)

    threading.Thread(target=leave, name="muster-leave", daemon=True).start()
