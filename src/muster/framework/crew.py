"""The threads of a run: lent out for work, back when it is done, gone when the run is."""

import contextvars
import queue
import threading
from collections.abc import Callable

Work = Callable[[Callable[[], None]], None]
"""Called on a crew thread with `go_home`, which it has to call once, after the last thing that it
does for others and before it tells them: so whoever hears that the work is done finds the thread
free again."""


class Crew:
    """Threads that start when they are needed first, at most `limit` of them."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._members: list[threading.Thread] = []
        self._inboxes: list[queue.SimpleQueue[Work | None]] = []
        self._free: list[queue.SimpleQueue[Work | None]] = []
        self._hiring = threading.Lock()

    def start(self, work: Work) -> bool:
        """Have a free thread do `work`. False if there is none and there may not be another."""
        try:
            inbox = self._free.pop()
        except IndexError:
            hired = self._hire()
            if hired is None:
                return False
            inbox = hired
        inbox.put(work)
        return True

    def close(self, wait: bool) -> None:
        """Send everybody home, and wait for them if they are known to come."""
        for inbox in self._inboxes:
            inbox.put(None)
        if wait:
            for member in self._members:
                member.join()

    def _hire(self) -> queue.SimpleQueue[Work | None] | None:
        with self._hiring:
            number = len(self._members)
            if self._limit is not None and number >= self._limit:
                return None
            inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
            member = threading.Thread(
                target=contextvars.copy_context().run,  # the user's context variables hold here too
                args=(self._serve, inbox),
                name=f"muster-{number}",
                daemon=True,  # so that a second Ctrl-C ends the program though a middleware hangs
            )
            try:
                member.start()
            except RuntimeError:  # the system has no more threads; make do with those there are
                return None
            self._members.append(member)
            self._inboxes.append(inbox)
        return inbox

    def _serve(self, inbox: queue.SimpleQueue[Work | None]) -> None:
        def go_home() -> None:
            self._free.append(inbox)

        while (work := inbox.get()) is not None:
            work(go_home)
            del work  # it holds a ctx, which must not live on while this thread idles
