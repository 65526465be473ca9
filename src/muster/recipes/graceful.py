"""The first Ctrl-C, SIGTERM or SIGHUP asks a run to end gracefully; the second ends it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from muster.framework import Context, Middleware, Task
from muster.framework.signals import STOP_SIGNALS


class StopRequest:
    """Whether a signal has asked the run to stop, and which one."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._note: Any = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Treat SIGINT, SIGTERM and SIGHUP as requests in the main thread; elsewhere do nothing.

        The loop in progress runs to its end, so a whole number of loops is saved. The first signal
        restores the previous handlers, so a second one has its usual effect: it ends the process on
        the command line, and raises KeyboardInterrupt elsewhere. A signal that is ignored, for
        example under nohup, stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.getsignal(number)
            for number in STOP_SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        }

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = number
            restore()

        for number in before:
            signal.signal(number, note)
        self._before, self._note = before, note
        try:
            yield
        finally:
            self._before = {}
            restore()

    @contextmanager
    def left_to_nodes(self) -> Iterator[None]:
        """Within `listening`, leave signals to the code that starts the nodes.

        Until that code installs its handlers, a signal ends the command. A signal that was noted
        before this call is raised again, so that starting nodes does not lose it.
        """
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.signal is not None and self._before:
            signal.raise_signal(self.signal)
        try:
            yield
        finally:
            for number in self._before:
                signal.signal(number, self._note)

    def request(self, number: int) -> None:
        """Ask the run to end as after this signal, from another thread."""
        self.signal = number

    def is_requested(self) -> bool:
        """Whether a signal arrived."""
        return self.signal is not None

    @classmethod
    def by_parent(cls, task: Task) -> "StopRequest":
        """Return the request of a node's task: its parent passes the signals on."""
        return _ParentsRequest(task)

    def middleware(self) -> Middleware:
        """Make a middleware that sets `ctx.finish` when a signal has arrived."""

        def _stop_on_signal(ctx: Context) -> None:
            if self.is_requested():
                ctx.finish = True
                ctx.stopped_by = "signal"

        return _stop_on_signal


class _ParentsRequest(StopRequest):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task

    def is_requested(self) -> bool:
        told = self._task.told_to_finish
        if told is None:
            return False
        self.signal = told.signal
        return True
