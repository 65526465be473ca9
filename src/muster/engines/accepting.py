"""`Accepting`: takes connections from a listening socket, each in a thread of its own.

A connection is a stranger until it has proved that it knows the token. Few strangers are let in at
a time, so that idle ones cannot use up threads and file descriptors.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

MOST_STRANGERS = 64
"""Maximum number of unauthenticated connections; more are refused."""

Receive = Callable[[socket.socket, str, Callable[[], None]], None]
"""Called with a connection, the other end's address, and a function to call once it is known."""


class Accepting:
    """Calls `receive` for each connection.

    Args:
        listener: The listening socket. `close` closes it.
        receive: Serves a connection, and closes it. Runs in a thread of its own.
        name: Name of the threads.
    """

    def __init__(self, listener: socket.socket, receive: Receive, name: str) -> None:
        self._listener = listener
        self._receive = receive
        self._name = name
        self._strangers = threading.BoundedSemaphore(MOST_STRANGERS)
        self._closed = False
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Stop listening; connections that were accepted stay open."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.1)  # for example, no file descriptor is left
                continue
            if not self._strangers.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(
                target=self._serve,
                args=(sock, str(address[0])),
                name=f"{self._name}-connection",
                daemon=True,
            ).start()

    def _serve(self, sock: socket.socket, address: str) -> None:
        release = contextlib.ExitStack()
        release.callback(self._strangers.release)
        with release:
            self._receive(sock, address, release.close)
