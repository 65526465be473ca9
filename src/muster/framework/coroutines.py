"""One event loop, in a thread of its own, for every `async def` of a task.

It runs from the first coroutine to the end of the run, in serial mode too: what a middleware
started with `asyncio.create_task` goes on while the others work, and a task can run where a loop is
running already (a notebook). asyncio is imported with the first coroutine, because it takes a third
of muster's import time.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from muster.errors import RunCancelled

if TYPE_CHECKING:
    import asyncio


_Outcome = tuple[Any, BaseException | None]


class Coroutines:
    """The event loop of one run. Every method may be called from any thread but the loop's own."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._running: set[asyncio.Task[_Outcome]] = set()
        self._cancelled = False
        self._abandoned = False

    def run(self, awaitable: Awaitable[Any], *, even_if_cancelled: bool = False) -> Any:
        """Await it on the event loop; block until it has ended, and return or raise what it did.

        Args:
            awaitable: A coroutine, or anything else that can be awaited.
            even_if_cancelled: Let it run to its end whatever happens: it cleans up.

        Raises:
            RunCancelled: it was cancelled by `cancel`.
        """
        loop = self._ensure_loop()
        ended: queue.SimpleQueue[asyncio.Task[_Outcome]] = queue.SimpleQueue()

        def start() -> None:
            task = loop.create_task(_outcome(awaitable))
            task.add_done_callback(ended.put)
            if not even_if_cancelled:
                self._running.add(task)
                task.add_done_callback(self._running.discard)
                if self._cancelled:
                    task.cancel()

        loop.call_soon_threadsafe(start, context=contextvars.copy_context())
        try:
            task = ended.get()
        except BaseException:  # a signal: it must not leave before the coroutine has ended
            self.cancel()
            self._abandoned = True  # unless it ends now; a second signal leaves at once
            ended.get()
            self._abandoned = False
            raise
        if task.cancelled() and self._cancelled:
            raise RunCancelled(
                "a coroutine was cancelled",
                "the run is being stopped",
                "let the exception pass; use try/finally to clean up",
            )
        value, exit_request = task.result()
        if exit_request is not None:
            raise exit_request
        return value

    def cancel(self) -> None:
        """Cancel what is running and what is started from now on."""
        self._cancelled = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_running)

    def close(self) -> None:
        """Cancel what is left, close async generators, end the thread."""
        if self._thread is not None:
            assert self._loop is not None and self._stop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
            if not self._abandoned:
                self._thread.join()

    def is_this_thread(self) -> bool:
        """Whether the caller runs on the event loop, where nothing may block."""
        return self._thread is threading.current_thread()

    def _cancel_running(self) -> None:
        for task in self._running:
            task.cancel()

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                ready: queue.SimpleQueue[None] = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=self._serve, args=(ready,), name="muster-coroutines", daemon=True
                )
                self._thread.start()
                ready.get()
            assert self._loop is not None
            return self._loop

    def _serve(self, ready: queue.SimpleQueue[None]) -> None:
        import asyncio

        async def until_stopped() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            ready.put(None)
            await self._stop.wait()

        asyncio.run(until_stopped())


async def _outcome(awaitable: Awaitable[Any]) -> _Outcome:
    try:
        return await awaitable, None
    except (KeyboardInterrupt, SystemExit) as exit_request:
        # Raised from a task, these two would end the event loop under everybody else's feet.
        return None, exit_request
