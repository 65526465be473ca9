"""SIGTERM as an exception, so that a run that is told to stop closes and saves first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Within this block SIGTERM raises SystemExit(143) in the main thread.

    A handler that the user installed stays. A second SIGTERM ends the process at once.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(EXIT_CODE)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
