"""The threads of a run: started on demand, reused while the run lasts, ended with it."""

import contextvars
import queue
import threading
from collections.abc import Callable

Work = Callable[[Callable[[], None]], None]
"""Called on a crew thread with `go_home`, which it has to call exactly once: after the last thing
that it does for others and before it tells them. So a caller that learns that the work is done
finds the thread free again."""


class Crew:
    """At most `limit` threads, each started when it is first needed."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._members: list[threading.Thread] = []
        self._inboxes: list[queue.SimpleQueue[Work | None]] = []
        self._free: list[queue.SimpleQueue[Work | None]] = []
        self._hiring = threading.Lock()

    def start(self, work: Work) -> bool:
        """Give `work` to a free thread. Return False if there is none and the limit is reached."""
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
        """Tell every thread to end, and wait for them if `wait`."""
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
                target=contextvars.copy_context().run,  # keeps the user's context variables
                args=(self._serve, inbox),
                name=f"muster-{number}",
                daemon=True,  # so that a second Ctrl-C ends the program even if a middleware hangs
            )
            try:
                member.start()
            except RuntimeError:  # the system allows no more threads; use the existing ones
                return None
            self._members.append(member)
            self._inboxes.append(inbox)
        return inbox

    def _serve(self, inbox: queue.SimpleQueue[Work | None]) -> None:
        def go_home() -> None:
            self._free.append(inbox)

        while (work := inbox.get()) is not None:
            work(go_home)
            del work  # it refers to a ctx, which must not stay alive while this thread idles
