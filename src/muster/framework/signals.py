"""Ctrl-C, SIGTERM and SIGHUP during a run: exceptions in user code, messages in muster's code.

A signal handler may raise its exception between any two instructions. In a middleware that is the
desired effect. While the main thread starts threads and waits for them, an exception would corrupt
its counts, so there the signal goes into the queue on which the main thread waits anyway.
"""

import inspect
import math
import queue
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any, TypeVar

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a run: Ctrl-C, a supervisor's request, a terminal that was closed."""

_T = TypeVar("_T")

_TURN_S = 0.25
"""How long the main thread waits before it checks again for a signal."""


def next_message(inbox: "queue.SimpleQueue[_T]", timeout: float | None = None) -> _T:
    """Return the next message; the main thread waits for it in short intervals.

    Python runs a signal handler between two instructions of the main thread, and an unlimited wait
    is one instruction: a signal that arrives just as the wait begins, or that the system delivers
    to another thread, would be handled only when something else ends the wait.

    Raises:
        queue.Empty: No message came in `timeout` seconds.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        try:
            return inbox.get(timeout=max(0.0, min(_TURN_S, end - time.monotonic())))
        except queue.Empty:
            if time.monotonic() >= end:
                raise


class SignalExit(SystemExit):
    """An exit that muster's own handler of a signal raises."""


def is_signal_exit(error: BaseException) -> bool:
    """Whether the handler of a signal raised this exit: muster's, or the user's.

    Such an exit may come out of any call that the signal interrupted, and is no failure of that
    call. A user's handler is recognised by its arguments: the number of the signal, and the
    interrupted frame, which is also its caller. A handler that deletes these arguments is not
    recognised.
    """
    if isinstance(error, SignalExit):
        return True
    is_exit = isinstance(error, SystemExit | KeyboardInterrupt)
    return is_exit and any(_handles_signal(at) for at, _ in traceback.walk_tb(error.__traceback__))


def _handles_signal(frame: FrameType) -> bool:
    """Whether Python called this frame's function because of a signal."""
    names, rest, _, values = inspect.getargvalues(frame)
    given = [values.get(name) for name in names]
    if rest is not None:
        given += values.get(rest, ())
    return any(
        isinstance(number, int) and interrupted is not None and interrupted is frame.f_back
        for number, interrupted in pairwise(given)
    )


class Signals:
    """The signal handlers of one run, and the decisions they led to."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Any] | None = None
        self._unread: BaseException | None = None
        self.abandoned = False
        """A second signal arrived while the run waited for the clean-up: leave without waiting."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals here, unless the user does or this is not the main thread.

        SIGTERM becomes SignalExit(143), so that a run that is told to stop closes and saves first.
        SIGHUP, from a terminal that was closed, becomes SignalExit(129), unless it is ignored as
        under nohup. A second signal ends the process at once.
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
        """Within this block, put a signal into `inbox` as the exception that it would have raised.

        The reader has to raise the exception eventually. Only the main thread ever receives
        signals; on other threads this does nothing.
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
            raise unread  # it arrived after the last read of the inbox

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
