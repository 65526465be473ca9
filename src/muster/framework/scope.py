"""The resources of one `run`, and how all of them are stopped together."""

import threading

from muster.errors import RunCancelled
from muster.framework.context import Context
from muster.framework.coroutines import Coroutines
from muster.framework.crew import Crew
from muster.framework.events import Events
from muster.framework.signals import Signals


class Scope:
    """The threads, event loop and signal handlers of a run, and its first failure."""

    def __init__(self, events: Events, node_id: int, max_threads: int | None) -> None:
        self.node_id = node_id
        self.signals = Signals()
        self.crew = Crew(max_threads)
        self.coroutines = Coroutines(self.signals)
        self.failure: BaseException | None = None
        """The first exception of overlapping steps: once set, the run cannot continue."""
        self._events = events
        self._failing = threading.Lock()

    def fail(self, error: BaseException, ctx: Context) -> None:
        """Record a failure; the first one stops all overlapping steps."""
        with self._failing:
            first = self.failure is None
            if first:
                self.failure = error
            elif error is not self.failure and not isinstance(error, RunCancelled):
                assert self.failure is not None
                self.failure.add_note(f"while stopping, there was also: {error!r}")
        if first:
            ctx.finish = True
            self._events.cancel()
            self.coroutines.cancel()

    def close(self) -> None:
        """End the threads. Nothing of the run remains afterwards, unless it was abandoned."""
        self._events.cancel()
        wait = not self.signals.abandoned
        self.coroutines.close(wait)
        self.crew.close(wait)
        self.failure = None  # it refers to the frames of the run, and so to the last ctx
