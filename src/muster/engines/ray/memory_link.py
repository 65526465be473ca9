"""Sockets for the shared memory of several machines: faster than a Ray call, which takes 1 ms.

    Replicator ──publication──> MemoryLink ──> MemoryServer on the other machine ──> its replica
               <─────────────── the counter of the publication ───────────────────

Both ends prove that they know the run's token before either reads anything else (see
`local.handshake`). A link is a shortcut and never the only way: if no connection can be made,
or a connection breaks or is silent, the publication goes by a Ray call. A replica ignores a
publication that it already has, so one that went both ways is written once.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence

from muster.engines.accepting import Accepting
from muster.engines.local.authentication import authenticate, introduce, receive
from muster.engines.local.handshake import Secrets

Part = tuple[int, bytes]
"""The offset of some bytes in the shared memory, and the bytes."""

ANSWER_SECONDS = 5.0
"""Maximum seconds for a machine's answer; then a Ray call asks whether it is still alive."""
_SLOWEST = 1e6
"""Bytes per second of the slowest network that is supported."""
_CONNECT_SECONDS = 2.0
_HEAD = struct.Struct("<qqq")
"""Node, counter, number of parts."""
_PART = struct.Struct("<qq")
"""Offset and size of a part."""
_COUNTER = struct.Struct("<q")
_MOST_PARTS = 1 << 16
_MOST_BYTES = 1 << 32


class MemoryServer:
    """Listens at this machine's address, and writes the publications of other machines.

    Args:
        host: The address of this machine in the cluster.
        node: The node of this actor.
        known: The run's secrets.
        write: Called with the parts, the node and the counter of each publication.
    """

    def __init__(
        self,
        host: str,
        node: int,
        known: Secrets,
        write: Callable[[Sequence[Part], int, int], None],
    ) -> None:
        self._node = node
        self._known = known
        self._write = write
        self._lock = threading.Lock()
        self._closed = False
        self._connections: set[socket.socket] = set()
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = Accepting(self._listener, self._serve, "muster-memory")

    def close(self) -> None:
        """Stop listening, and end all connections: nothing is written after this returns."""
        with self._lock:
            self._closed = True
            for sock in self._connections:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
        self._accepting.close()

    def _serve(self, sock: socket.socket, _: str, known: Callable[[], None]) -> None:
        with sock, contextlib.suppress(OSError, EOFError):
            authenticate(sock, self._node, self._known)
            known()
            sock.settimeout(None)
            _prepare(sock)
            with self._lock:
                self._connections.add(sock)
            try:
                while True:
                    node, count, number = _HEAD.unpack(receive(sock, _HEAD.size))
                    parts = _receive_parts(sock, number)
                    with self._lock:
                        if self._closed:
                            return
                        self._write(parts, node, count)
                    sock.sendall(_COUNTER.pack(count))
            finally:
                with self._lock:
                    self._connections.discard(sock)


class MemoryLink:
    """A connection to the `MemoryServer` of another machine.

    Args:
        host: Address of that machine.
        port: Port on which its server listens.
        node: The node whose publications are sent.
        to_node: The node whose actor listens.
        known: The run's secrets.

    Raises:
        OSError: There is no connection, or the server is of another run.
    """

    def __init__(self, host: str, port: int, node: int, to_node: int, known: Secrets) -> None:
        self._sock = socket.create_connection((host, port), _CONNECT_SECONDS)
        try:
            introduce(self._sock, node, to_node, known)
            _prepare(self._sock)
        except BaseException:
            self._sock.close()
            raise

    def send(self, parts: Sequence[Part], node: int, count: int) -> None:
        """Send a publication.

        Raises:
            OSError: The connection is broken, or the other side does not read.
        """
        head = _HEAD.pack(node, count, len(parts))
        places = b"".join(_PART.pack(start, len(data)) for start, data in parts)
        message = b"".join([head, places, *(data for _, data in parts)])
        self._sock.settimeout(ANSWER_SECONDS + len(message) / _SLOWEST)
        self._sock.sendall(message)

    def wait(self, count: int) -> None:
        """Wait until the other machine has the publication with this counter.

        Raises:
            OSError: The other machine does not answer.
        """
        if _COUNTER.unpack(receive(self._sock, _COUNTER.size))[0] != count:
            raise ConnectionError("an answer to another publication")

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def _prepare(sock: socket.socket) -> None:
    """Send each message when it is written, and notice a machine that has lost power."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _receive_parts(sock: socket.socket, number: int) -> list[Part]:
    """Receive the parts of a publication; checks sizes before it allocates memory."""
    if not 0 <= number <= _MOST_PARTS:
        raise ConnectionError(f"{number} parts in one publication")
    places = list(_PART.iter_unpack(receive(sock, number * _PART.size)))
    total = sum(size for _, size in places)
    if any(start < 0 or size < 0 for start, size in places) or total > _MOST_BYTES:
        raise ConnectionError("a publication of impossible size")
    return [(start, bytes(receive(sock, size))) for start, size in places]
