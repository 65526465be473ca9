"""`DriverLink`: messages between the process that starts a program and the program's first node.

    driver ──send──> supervisor of the run ──> node 0        driver <──receive── node 0
    driver ──send──> the run itself, if it has no nodes      driver <──receive── the run

The driver is the thread that called for the run; the run has a thread of its own. A message to a
node that is being replaced is lost, so the driver repeats what it wants when the node reports.
"""

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from muster.framework.signals import next_message


@dataclass(frozen=True, slots=True)
class StopSignal:
    """Ends the run as if this signal had arrived: the first gracefully, the second at once."""

    number: int


class DriverLink:
    """Two mailboxes: one for the run, one for its driver."""

    def __init__(self) -> None:
        self._for_run: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._for_driver: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._wake: Callable[[], object] | None = None
        self._lock = threading.Lock()

    # ---- for the driver

    def send(self, message: object) -> None:
        """Send the run a message, without waiting."""
        with self._lock:
            self._for_run.put(message)
            if self._wake is not None:
                self._wake()

    def receive(self, timeout: float | None = None) -> object:
        """Return the next message from the run. Signals interrupt the wait.

        Raises:
            queue.Empty: No message came in `timeout` seconds.
        """
        return next_message(self._for_driver, timeout)

    # ---- for the run

    def deliver(self, message: object) -> None:
        """Give the driver a message."""
        self._for_driver.put(message)

    def take(self, timeout: float = 0.0) -> list[object]:
        """Return the driver's messages; waits at most `timeout` seconds for the first one."""
        found: list[object] = []
        try:
            found.append(self._for_run.get(timeout=timeout))
            while True:
                found.append(self._for_run.get(False))
        except queue.Empty:
            return found

    @contextmanager
    def waking(self) -> Iterator[socket.socket]:
        """Yield a socket that becomes readable when the driver has sent something."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)

        def wake() -> None:
            with suppress(BlockingIOError):  # it is readable already
                writer.send(b"x")

        with self._lock:
            self._wake = wake
            wake()  # for messages from before
        try:
            yield reader
        finally:
            with self._lock:
                self._wake = None
            reader.close()
            writer.close()
