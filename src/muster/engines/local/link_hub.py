"""`LinkHub`: the thread that reads every link of a node.

Only one thread at a time calls the receivers, so they need no locks among themselves. A program
thread that waits for a message reads the links itself meanwhile (`help`): the message then arrives
without a switch to another thread, which would double the time. The link thread pauses until no
thread has helped for a moment.
"""

import contextlib
import os
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from muster.engines.base import Receiver
from muster.engines.local.blocks import BlockPool
from muster.engines.local.frames import FrameError
from muster.engines.local.handshake import LinkRequest, Secrets
from muster.engines.local.link import Link
from muster.engines.local.listener import Listener, request_link
from muster.framework.node import Place

PULSE = 0.1
"""Maximum seconds that the serving thread sleeps."""
EXIT_LINKS_FAILED = 70
"""Exit code of a node whose link thread has failed."""
_LOOK = 60e-6
_STAND_ASIDE = 0.005
"""Seconds without a helper after which the link thread serves again."""


class LinkHub:
    """All connections of one node.

    Args:
        place: The place of this node.
        known: The run's secrets.
        directory: Directory of the nodes' sockets.
        pool: Blocks of this process.
        receiver: Receives the messages.
        report: Called with a line for the log when something was refused.
        pulse: Called several times a second, by whichever thread serves.
    """

    def __init__(
        self,
        place: Place,
        known: Secrets,
        directory: Path,
        pool: BlockPool,
        receiver: Receiver,
        report: Callable[[str], None],
        pulse: Callable[[], None],
    ) -> None:
        self._pulse = pulse
        self._place = place
        self._known = known
        self._directory = directory
        self._pool = pool
        self._receiver = receiver
        self._report = report
        self._links: dict[int, Link] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._to_flush: set[Link] = set()
        self._to_adopt: list[Link] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._serving = threading.Lock()
        """Held by the thread that waits on the selector and handles its events."""
        self._helping = threading.Lock()
        self._helper_waits = False
        self._helped_at = -_STAND_ASIDE
        self._attention = threading.Event()
        self._door = Listener(place, known, directory, self._selector, self._admit, report)
        self._thread = threading.Thread(target=self._serve, name="muster-links", daemon=True)

    # ---- for any thread

    def start(self) -> None:
        """Start the link thread."""
        self._thread.start()

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call `ready` when there is something to read; only before `start`."""
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def link_to(self, peer: int) -> Link | None:
        """Return the link to a node, if there is one."""
        return self._links.get(peer)

    def connect(self, peer: int, incarnation: int) -> bool:
        """Link this node to one that is already up; False if that node died meanwhile."""
        sock = request_link(self._place, self._known, self._directory, peer, incarnation)
        if sock is None:
            return False
        with self._lock:
            self._to_adopt.append(Link(sock, peer, incarnation, self._pool, self._flush_later))
        self._wake()
        return True

    def help(self, until: Callable[[], bool], deadline: float | None) -> bool:
        """Do the link thread's work until `until` holds or the deadline passes.

        Returns False at once if another thread is already helping.
        """
        if threading.current_thread() is self._thread or not self._helping.acquire(False):
            return False
        try:
            self._helper_waits = True
            if not self._serving.acquire(False):
                self._wake()
                self._serving.acquire()
            try:
                # Poll for a moment before sleeping: an immediate answer then needs no wake-up,
                # which takes longer than the rest of the way.
                look_until = time.monotonic() + _LOOK
                while not until() and not self._stopping:
                    now = time.monotonic()
                    if deadline is not None and deadline <= now:
                        break
                    if now < look_until:
                        self._serve_once(0)
                    else:
                        self._serve_once(PULSE if deadline is None else min(PULSE, deadline - now))
            finally:
                self._helped_at = time.monotonic()
                self._helper_waits = False
                self._serving.release()
        finally:
            self._helping.release()
        return True

    def stop(self, seconds: float) -> None:
        """Send the remaining bytes, at most for so many seconds, then close everything."""
        deadline = time.monotonic() + seconds
        for link in list(self._links.values()):
            while not link.flush() and time.monotonic() < deadline:
                _wait_until_writable(link.sock, deadline)
        self._stopping = True
        self._wake()
        self._thread.join()

    def let_go(self) -> None:
        """Close all connections in a process that was forked from this one.

        Otherwise other nodes would take the fork for this node, and wait for its answers after this
        node has exited. Only descriptors are closed: the selector is still the node's.
        """
        for sock in (self._door.listener, self._wake_read, self._wake_write):
            sock.close()
        for link in self._links.values():
            link.sock.close()

    # ---- the thread

    def _serve(self) -> None:
        try:
            self._serve_until_stopped()
        except BaseException:
            # A node that can receive nothing must not look alive.
            traceback.print_exc()
            os._exit(EXIT_LINKS_FAILED)

    def _serve_until_stopped(self) -> None:
        while not self._stopping:
            with self._serving:
                self._serve_once(PULSE)
            while not self._stopping and (
                self._helper_waits or time.monotonic() - self._helped_at < _STAND_ASIDE
            ):
                if self._attention.wait(_STAND_ASIDE):
                    self._attention.clear()  # else this would spin, and hold the interpreter
                    if not self._helper_waits:
                        break
        with self._serving:
            self._close()

    def _serve_once(self, timeout: float) -> None:
        self._pulse()
        for key, events in self._selector.select(timeout):
            # An earlier event of the same batch may have closed it.
            if isinstance(key.data, Link):
                if key.data.is_open:
                    self._serve_link(key.data, events)
            else:
                key.data()
        self._door.drop_late_strangers()

    def _serve_link(self, link: Link, events: int) -> None:
        if events & selectors.EVENT_WRITE and link.flush():
            self._selector.modify(link.sock, selectors.EVENT_READ, link)
        if not events & selectors.EVENT_READ:
            return
        try:
            for delivery in link.read():
                self._receiver.received(delivery)
        except EOFError:
            self._lose(link)
        except FrameError as error:
            self._report(f"the link to node {link.peer} was closed: {error.args[0]}")
            self._lose(link)

    def _lose(self, link: Link) -> None:
        self._selector.unregister(link.sock)
        link.close()
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._receiver.lost(link.peer)

    def _adopt(self, link: Link) -> None:
        """Put a link into service. A newer incarnation replaces an older one, never the reverse.

        This fences the replaced incarnation: no one reads its link any more.
        """
        older = self._links.get(link.peer)
        if older is not None:
            if older.incarnation >= link.incarnation:
                link.close()
                return
            self._lose(older)
        self._links[link.peer] = link
        self._selector.register(link.sock, selectors.EVENT_READ, link)
        self._receiver.linked(link.peer, link.incarnation)

    def _admit(self, sock: socket.socket, hello: LinkRequest) -> None:
        self._adopt(Link(sock, hello.node, hello.incarnation, self._pool, self._flush_later))

    def _woken(self) -> None:
        try:
            while self._wake_read.recv(4096):
                pass
        except BlockingIOError:
            pass
        with self._lock:
            adopt, self._to_adopt = self._to_adopt, []
            flush, self._to_flush = self._to_flush, set()
        for link in adopt:
            self._adopt(link)
        for link in flush:
            if self._links.get(link.peer) is link and not link.flush():
                both = selectors.EVENT_READ | selectors.EVENT_WRITE
                self._selector.modify(link.sock, both, link)

    def _flush_later(self, link: Link) -> None:
        with self._lock:
            self._to_flush.add(link)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # already full of wake-ups, or closed
            self._wake_write.send(b"x")
        self._attention.set()

    def _close(self) -> None:
        self._door.close()
        for link in list(self._links.values()):
            self._selector.unregister(link.sock)
            link.close()
        self._links.clear()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()


def _wait_until_writable(sock: socket.socket, deadline: float) -> None:
    """Wait until a socket is writable, or until the deadline."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_WRITE)
        selector.select(max(0.0, deadline - time.monotonic()))
