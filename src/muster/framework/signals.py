"""Ctrl-C, SIGTERM and SIGHUP during a run: exceptions in a user's code, messages in muster's own.

An exception that a signal handler raises may come between any two instructions. In a middleware
that is what one wants. Where the main thread starts threads and waits for them it would lose
count, so there the signal is put into the queue on which the main thread waits anyway.
"""

import math
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to end: Ctrl-C, a supervisor's word, a terminal that was closed."""

_T = TypeVar("_T")

_TURN_S = 0.25
"""How long the main thread waits before it looks whether a signal came meanwhile."""


def next_message(inbox: "queue.SimpleQueue[_T]", timeout: float | None = None) -> _T:
    """Return the next message, for which the main thread waits in turns.

    Python runs a signal's handler between two instructions of the main thread, and a wait that
    never ends is one instruction: a signal that comes just as it begins, or that the system gives
    to another thread, would be heard of only when something else ends the wait.

    Raises:
        queue.Empty: There was none in `timeout` seconds.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        try:
            return inbox.get(timeout=max(0.0, min(_TURN_S, end - time.monotonic())))
        except queue.Empty:
            if time.monotonic() >= end:
                raise


class SignalExit(SystemExit):
    """The exit that a signal asks for, and not a user's code."""


class Signals:
    """The handlers of signals during one run, and what was decided because of them."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Any] | None = None
        self._unread: BaseException | None = None
        self.abandoned = False
        """A second signal came while the first one's clean-up was waiting: leave without it."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals here, unless the user does or this is not the main thread.

        SIGTERM becomes SystemExit(143), so that a run that is told to stop closes and saves first;
        SIGHUP, of a terminal that was closed, likewise SystemExit(129), unless it is ignored as
        under nohup. A second one ends the process at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        replaced: dict[signal.Signals, Any] = {}
        try:
            for number, usual, ours in (
                (signal.SIGINT, signal.default_int_handler, self._on_sigint),
                (signal.SIGTERM, signal.SIG_DFL, self._on_sigterm),
                (signal.SIGHUP, signal.SIG_DFL, self._on_sigterm),
            ):
                if signal.getsignal(number) is usual:
                    replaced[number] = usual
                    signal.signal(number, ours)
            yield
        finally:
            for number, usual in replaced.items():
                signal.signal(number, usual)

    @contextmanager
    def as_messages(self, inbox: "queue.SimpleQueue[Any]") -> Iterator[None]:
        """Within this block a signal is put into `inbox`, as the exception that it would have been.

        Whoever reads it there has to raise it in the end. Only the main thread ever sees a signal;
        for others this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        outer, self._inbox = self._inbox, inbox
        try:
            yield
        finally:
            self._inbox = outer
            unread, self._unread = self._unread, None
        if unread is not None:
            raise unread  # it came when nobody looked into the inbox any more

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        self._deliver(KeyboardInterrupt())

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        self._deliver(SignalExit(128 + number))

    def _deliver(self, error: BaseException) -> None:
        if self._inbox is None:
            raise error
        self._unread = error
        self._inbox.put(error)
