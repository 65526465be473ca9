"""Events between the parts of a program: listeners that are called, and waits that are woken.

The emitting thread delivers, one event at a time for the whole task. An event emitted during a
delivery (by a listener, or by another thread) goes into a queue, which the delivering thread
empties. So all listeners see the same order, none runs twice at once, and `emit` never waits for
another thread, although it may have to deliver the events that others emit meanwhile.
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.errors import RunCancelled
from muster.framework.misuse import check_listener
from muster.framework.names import name_of

Listener = Callable[..., object]
Payload = tuple[tuple[Any, ...], dict[str, Any]]

_log = logging.getLogger("muster")


@dataclass(frozen=True, slots=True, eq=False)
class _Registration:
    listener: Listener
    once: bool


class Events:
    """The listeners and waits of one task; usable from any thread and from signal handlers."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may emit during any of these methods.
        self._lock = threading.RLock()
        self._registered: dict[str, tuple[_Registration, ...]] = {}
        self._waiting: dict[str, tuple[queue.SimpleQueue[Payload | None], ...]] = {}
        self._undelivered: deque[tuple[str, Payload]] = deque()
        self._delivering = False
        self._cancelled = False

    def on(self, name: str, listener: Listener, *, once: bool = False) -> None:
        """Call `listener` for every event of this name, or for the next one only.

        A listener that is registered again is still called once; the last registration counts.
        """
        check_listener(name, listener)
        with self._lock:
            registered = self._registered.get(name, ())
            if any(each.listener == listener and each.once == once for each in registered):
                return
            others = tuple(each for each in registered if each.listener != listener)
            self._registered[name] = (*others, _Registration(listener, once))

    def off(self, name: str, listener: Listener | None = None) -> None:
        """Remove this listener, or all listeners of this name. Unknown ones are not an error."""
        with self._lock:
            registered = self._registered.pop(name, ())
            left = tuple(each for each in registered if each.listener != listener)
            if listener is not None and left:
                self._registered[name] = left

    def emit(self, name: str, payload: Payload) -> None:
        """Wake every wait for `name`, then deliver the event to its listeners."""
        self._wake(name, payload)
        self._undelivered.append((name, payload))
        while self._undelivered:
            mine = False
            try:
                with self._lock:
                    if self._delivering:
                        return
                    mine = self._delivering = True
                while self._undelivered:
                    self._deliver(*self._undelivered.popleft())
            finally:
                if mine:
                    self._delivering = False
            # Check again: another thread may have emitted meanwhile and relied on this one.

    def emit_here(self, name: str, payload: Payload) -> None:
        """Like `emit`, but delivery is complete on return, even if another thread is delivering."""
        self._wake(name, payload)
        self._deliver(name, payload)

    def wait_for(self, name: str, timeout: float | None = None) -> Payload:
        """Block until the next event of this name and return its arguments.

        Raises:
            TimeoutError: `timeout` seconds passed without an event.
            RunCancelled: The run is being stopped, so no event will come.
        """
        reply: queue.SimpleQueue[Payload | None] = queue.SimpleQueue()
        try:
            with self._lock:
                if self._cancelled:
                    raise _no_more_events(name)
                self._waiting[name] = (*self._waiting.get(name, ()), reply)
            payload = reply.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event {name!r} within {timeout} s") from None
        finally:
            self._forget(name, reply)
        if payload is None:
            raise _no_more_events(name)
        return payload

    def cancel(self) -> None:
        """Wake every wait, present and future, with RunCancelled."""
        with self._lock:
            self._cancelled = True
            for replies in self._waiting.values():
                for reply in replies:
                    reply.put(None)

    def _wake(self, name: str, payload: Payload) -> None:
        with self._lock:
            for reply in self._waiting.pop(name, ()):
                reply.put(payload)

    def _forget(self, name: str, reply: "queue.SimpleQueue[Payload | None]") -> None:
        with self._lock:
            left = tuple(each for each in self._waiting.pop(name, ()) if each is not reply)
            if left:
                self._waiting[name] = left

    def _deliver(self, name: str, payload: Payload) -> None:
        args, kwargs = payload
        exit_request: BaseException | None = None
        with self._lock:
            registered = self._registered.get(name, ())
        for registration in registered:
            try:
                if self._still_wants(name, registration):
                    registration.listener(*args, **kwargs)
            except Exception:
                listener = name_of(registration.listener)
                _log.exception("listener %r of event %r failed", listener, name)
            except BaseException as error:  # sys.exit() or Ctrl-C: call the others first
                exit_request = exit_request or error
        if exit_request is not None:
            raise exit_request

    def _still_wants(self, name: str, registration: _Registration) -> bool:
        with self._lock:
            wanted = registration in self._registered.get(name, ())
            if wanted and registration.once:
                self.off(name, registration.listener)
            return wanted


def _no_more_events(name: str) -> RunCancelled:
    return RunCancelled(
        f"the wait for event {name!r} was cancelled",
        "the run is over or is being stopped, so no one would emit the event",
        "let the exception pass; use try/finally to clean up",
    )
