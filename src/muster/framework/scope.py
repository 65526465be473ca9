"""What one `run` owns, and how all of it is stopped together."""

import threading

from muster.errors import RunCancelled
from muster.framework.context import Context
from muster.framework.coroutines import Coroutines
from muster.framework.crew import Crew
from muster.framework.events import Events
from muster.framework.signals import Signals


class Scope:
    """The threads, the event loop and the signals of a run, and the first thing that went wrong."""

    def __init__(self, events: Events, node_id: int, max_threads: int | None) -> None:
        self.node_id = node_id
        self.signals = Signals()
        self.crew = Crew(max_threads)
        self.coroutines = Coroutines(self.signals)
        self.failure: BaseException | None = None
        """Of steps that overlap: once it is set, the run cannot go on."""
        self._events = events
        self._failing = threading.Lock()

    def fail(self, error: BaseException, ctx: Context) -> None:
        """Note a failure; the first one tells everything that overlaps to stop."""
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
        """End the threads. Nothing of the run is left after this, unless it was abandoned."""
        self._events.cancel()
        wait = not self.signals.abandoned
        self.coroutines.close(wait)
        self.crew.close(wait)
        self.failure = None  # it holds the frames of the run, and so the last ctx
