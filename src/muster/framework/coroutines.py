"""One event loop, in its own thread, for every `async def` of a task.

The loop runs from the first coroutine to the end of the run, also in serial mode. So a task that
a middleware started with `asyncio.create_task` continues while others work, and a `Task` can run
where an event loop is already running (a notebook). asyncio is imported with the first coroutine,
because it takes a third of muster's import time.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from muster.errors import RunCancelled, TaskError
from muster.framework.signals import Signals, next_message

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger("muster")

_PATIENCE_S = 10.0
"""How long asyncio tasks may take to end before a warning says so."""

_Outcome = tuple[Any, BaseException | None]


class Coroutines:
    """The event loop of one run. Every method may be called from any thread but the loop's own."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._starting = threading.Lock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._running: set[asyncio.Task[_Outcome]] = set()
        self._cancelled = False

    def run(self, awaitable: Awaitable[Any], *, even_if_cancelled: bool = False) -> Any:
        """Await on the event loop, block until done, and return the result or raise the exception.

        Args:
            awaitable: A coroutine, or any other awaitable.
            even_if_cancelled: Let it run to its end in any case, because it cleans up.

        Raises:
            RunCancelled: `cancel` cancelled it.
        """
        if self.is_this_thread():
            _discard(awaitable)
            raise TaskError(
                "an async def called a group that holds an async def",
                "the group would wait for the event loop that it runs on",
                "task.use(group), or call it from a middleware that is not an async def",
            )
        news: queue.SimpleQueue[asyncio.Task[_Outcome] | BaseException | None] = queue.SimpleQueue()

        def start() -> None:
            if self._cancelled and not even_if_cancelled:
                _discard(awaitable)
                news.put(None)
                return
            task = self._loop.create_task(_outcome(awaitable))
            task.add_done_callback(news.put)
            if not even_if_cancelled:
                self._running.add(task)
                task.add_done_callback(self._running.discard)

        with self._signals.as_messages(news):
            self._ensure_loop()
            self._loop.call_soon_threadsafe(start, context=contextvars.copy_context())
            ended = self._wait(news)
        if ended is None or (ended.cancelled() and self._cancelled):
            raise RunCancelled(
                "a coroutine was cancelled",
                "the run is being stopped",
                "let the exception pass; use try/finally to clean up",
            )
        value, exit_request = ended.result()
        if exit_request is not None:
            raise exit_request
        return value

    def _wait(
        self, news: queue.SimpleQueue[asyncio.Task[_Outcome] | BaseException | None]
    ) -> asyncio.Task[_Outcome] | None:
        signal: BaseException | None = None
        while True:
            message = next_message(news)
            if not isinstance(message, BaseException):
                if signal is not None:
                    raise signal
                return message
            if signal is not None:
                self._signals.abandoned = True
                raise message
            signal = message  # raised only when the coroutine has ended
            self.cancel()

    def cancel(self) -> None:
        """Cancel all running coroutines and all that are started from now on."""
        self._cancelled = True
        if self._ready.is_set():
            self._loop.call_soon_threadsafe(self._cancel_running)

    def close(self, wait: bool) -> None:
        """Cancel the rest, close async generators, end the thread and, if `wait`, wait for it."""
        if self._thread is None:
            return
        self._ready.wait()
        self._loop.call_soon_threadsafe(self._stop.set)
        while wait and self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive():
                _log.warning("waiting for asyncio tasks that were cancelled and do not end")

    def is_this_thread(self) -> bool:
        """Whether the caller runs on the event loop, where nothing may block."""
        return self._thread is threading.current_thread()

    def _cancel_running(self) -> None:
        for task in self._running:
            # Not at once: cancelled before its first step, it would leave its coroutine unawaited.
            self._loop.call_soon(task.cancel)

    def _ensure_loop(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="muster-coroutines", daemon=True
                )
                self._thread.start()
        self._ready.wait()

    def _serve(self) -> None:
        import asyncio

        async def until_stopped() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            self._ready.set()
            await self._stop.wait()

        asyncio.run(until_stopped())


async def _outcome(awaitable: Awaitable[Any]) -> _Outcome:
    try:
        return await awaitable, None
    except (KeyboardInterrupt, SystemExit) as exit_request:
        # Raised from a task, these two would end the event loop for every other coroutine.
        return None, exit_request


def _discard(awaitable: Awaitable[Any]) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()  # or Python warns, later and elsewhere, that it was never awaited
