"""`Listener`: accepts connections, authenticates them, and passes them on as links.

It runs on the thread that serves the node's selector. Unauthenticated connections are limited in
number and in time; nothing that they send is decoded before authentication.
"""

import errno
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from muster.engines.local import handshake
from muster.engines.local.handshake import HandshakeError, LinkRequest, Secrets
from muster.framework.node import Place

HANDSHAKE_SECONDS = 5.0
MOST_STRANGERS = 64
"""Maximum number of unauthenticated connections; a new one closes the oldest."""
_BACKLOG = 256
_TRIES = 10


class _Stranger:
    """An accepted connection that is not authenticated yet."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.deadline = time.monotonic() + HANDSHAKE_SECONDS
        self.said = b""
        self.hello: LinkRequest | None = None
        self.nonce = secrets.token_bytes(32)


class Listener:
    """The listening socket of a node.

    Args:
        place: The place of this node.
        known: The run's secrets.
        directory: Directory of the nodes' sockets.
        selector: Watches the sockets.
        admit: Called with each authenticated connection, and the request that it sent.
        report: Called with a line for the log when something was refused.
    """

    def __init__(
        self,
        place: Place,
        known: Secrets,
        directory: Path,
        selector: selectors.BaseSelector,
        admit: Callable[[socket.socket, LinkRequest], None],
        report: Callable[[str], None],
    ) -> None:
        self._place = place
        self._known = known
        self._selector = selector
        self._admit = admit
        self._report = report
        self._reported_at = -1.0
        self._unreported = 0
        self._strangers: list[_Stranger] = []
        self.listener = _listen(socket_path(directory, place.node_id))
        selector.register(self.listener, selectors.EVENT_READ, self._accept)

    def drop_late_strangers(self) -> None:
        """Close connections that took too long to authenticate."""
        while self._strangers and self._strangers[0].deadline <= time.monotonic():
            self._dismiss(self._strangers[0])

    def close(self) -> None:
        """Close all unauthenticated connections, and stop listening."""
        for stranger in list(self._strangers):
            self._dismiss(stranger)
        self._selector.unregister(self.listener)
        self.listener.close()

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                sock, _address = self.listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._strangers:
                    self._dismiss(self._strangers[0])
                    continue
                return
            if _user_of(sock) != os.getuid():
                sock.close()
                self._report_refusal(
                    HandshakeError("a connection was refused", "it is of another user", "")
                )
                continue
            if len(self._strangers) >= MOST_STRANGERS:
                self._dismiss(self._strangers[0])
            stranger = _Stranger(sock)
            self._strangers.append(stranger)
            self._selector.register(sock, selectors.EVENT_READ, partial(self._on_message, stranger))

    def _on_message(self, stranger: _Stranger) -> None:
        if stranger not in self._strangers:
            return  # an earlier event of the same batch has closed it
        wanted = handshake.HELLO_SIZE if stranger.hello is None else handshake.PROOF_SIZE
        try:
            said = stranger.sock.recv(wanted - len(stranger.said))
            if not said:
                raise EOFError
            stranger.said += said
            if len(stranger.said) == wanted:
                self._answer(stranger)
        except BlockingIOError:
            return
        except HandshakeError as error:  # also an OSError
            self._report_refusal(error)
            self._dismiss(stranger)
        except (OSError, EOFError):
            self._dismiss(stranger)

    def _report_refusal(self, error: HandshakeError) -> None:
        """Log a refusal, at most once a second: strangers must not fill the log."""
        now = time.monotonic()
        if now - self._reported_at < 1.0:
            self._unreported += 1
            return
        more = f" (and {self._unreported} more)" if self._unreported else ""
        self._reported_at, self._unreported = now, 0
        self._report(f"{error.args[0]}: {error.args[1]}{more}")

    def _answer(self, stranger: _Stranger) -> None:
        said, stranger.said = stranger.said, b""
        if stranger.hello is not None:
            handshake.check_proof(said, stranger.hello, stranger.nonce, self._known)
            self._strangers.remove(stranger)
            self._selector.unregister(stranger.sock)
            self._admit(stranger.sock, stranger.hello)
            return
        try:
            hello = handshake.read_link_request(said, self._known)
        except HandshakeError:
            stranger.sock.send(handshake.pack_refusal(self._known))
            raise
        me = self._place
        if (hello.to_node, hello.to_incarnation) != (me.node_id, me.incarnation):
            raise HandshakeError(
                "a connection was refused", "it is meant for another node", "report it"
            )
        stranger.hello = hello
        stranger.sock.send(handshake.pack_answer(hello, stranger.nonce, self._known))

    def _dismiss(self, stranger: _Stranger) -> None:
        self._strangers.remove(stranger)
        self._selector.unregister(stranger.sock)
        stranger.sock.close()


def request_link(
    place: Place, known: Secrets, directory: Path, peer: int, incarnation: int
) -> socket.socket | None:
    """Return a connection to a node that is already up, once both sides are authenticated.

    Waits as long as that node is alive, because it may be busy. None if it died meanwhile: when it
    comes back, it connects itself.
    """
    for _ in range(_TRIES):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(socket_path(directory, peer)))
        except OSError:
            sock.close()
            return None
        try:
            hello = LinkRequest.fresh(place.node_id, place.incarnation, peer, incarnation)
            sock.sendall(handshake.pack_link_request(hello, known))
            answer = _receive(sock, handshake.ANSWER_SIZE)
            sock.sendall(handshake.read_answer(answer, hello, known))
            return sock
        except HandshakeError:  # also an OSError
            sock.close()
            raise
        except (OSError, EOFError):
            sock.close()  # the listener closed the connection, because this node was too slow
    return None


def socket_path(directory: Path, node: int) -> Path:
    """Return the path of a node's listening socket."""
    return directory / f"node-{node}"


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # left by the previous incarnation
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    os.chmod(path, 0o600)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _user_of(sock: socket.socket) -> Any:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1]
