"""`Wire`: frames between two ranks, over a socket whose ends have proved that they know the token.

    frame = kind, source, target, number, size | payload of `size` bytes

Only rank 0 listens, so every wire ends at rank 0, which passes frames on between the others. The
kernel notices a machine that is lost (keep-alive and the user timeout of TCP), also while Python
is busy; a process that is killed closes its wires.
"""

import contextlib
import json
import queue
import socket
import struct
import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from muster.engines.local.authentication import receive, receive_into
from muster.errors import ClusterError, MusterError, OptionError, raised_at, summary

_HEAD = struct.Struct("<BiiqQ")
_SIZES = struct.Struct("<III")
"""Bytes of head and tree of a message, and the number of its buffers."""
_SIZE = struct.Struct("<Q")
_MOST_TEXT = 16 << 20
_MOST_BUFFERS = 1 << 16
MOST_BYTES = 1 << 36
"""Maximum bytes of a frame; checked before memory is taken for it."""
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 2, 2, 3
_UNACKNOWLEDGED_MS = 15_000
"""Milliseconds after which the kernel gives up a connection whose data is not acknowledged."""
_CLOSE_SECONDS = 5.0


class Kind(IntEnum):
    """What a frame is about."""

    HELLO = 1
    """A rank's settings and versions (text)."""
    WELCOME = 2
    """All ranks are there, and fit together."""
    START = 3
    """Settings and state of the run (message)."""
    AT_RUN = 4
    """A rank is about to run its task (text)."""
    GO = 5
    """All ranks are about to run (text)."""
    PUBLISH = 6
    """Bytes of the shared arrays, and the counter of the rank that wrote them."""
    MESSAGE = 7
    """A message of the program to one rank."""
    STOP = 8
    """A signal asks the run to stop (count: its number)."""
    ABORT = 9
    """The run has failed (text: the three lines)."""
    DONE = 10
    """The rank has trained (text: the hash of its weights)."""
    END = 11
    """The run is complete, and saved."""
    BEAT = 12
    """The rank lives (count: its progress)."""


class FrameHead(NamedTuple):
    """The fixed part of a frame."""

    kind: int
    source: int
    target: int
    number: int
    """A counter or a signal, depending on the kind."""
    size: int


class Message(NamedTuple):
    """The payload of START and MESSAGE: a head, a tree, and the raw memory of arrays."""

    head: bytes
    tree: bytes
    buffers: Sequence[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return sum(len(each) for each in self.buffers)


class JoinedParcel:
    """A message, ready to be sent: the sender may reuse its own memory."""

    def __init__(self, tree: bytes, buffers: Sequence[memoryview]) -> None:
        self.tree = tree
        self.buffers = [bytes(each) for each in buffers]
        self.nbytes = sum(map(len, self.buffers))

    def drop(self) -> None:
        """Do nothing: a posted message keeps its own references."""


class Wire:
    """A connection to another rank.

    Args:
        sock: A connected socket, after the handshake.
        me: This rank.
        peer: The rank at the other end.
    """

    def __init__(self, sock: socket.socket, me: int, peer: int) -> None:
        self.peer = peer
        self._me = me
        self._sock = sock
        self._sending = threading.Lock()
        self._queue: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        sock.settimeout(None)
        tcp = socket.IPPROTO_TCP
        sock.setsockopt(tcp, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPCNT, _PROBES)
        sock.setsockopt(tcp, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)

    # ---- sending

    def send(
        self,
        kind: Kind,
        payload: Sequence[Any] = (),
        *,
        count: int = 0,
        source: int | None = None,
        target: int | None = None,
    ) -> None:
        """Send a frame, and wait until the kernel has taken it.

        The other end always reads, so this does not wait for the other rank's main thread.

        Raises:
            OSError: The connection is broken.
        """
        self._send(self._frame(kind, payload, count, source, target))

    def post(
        self,
        kind: Kind,
        payload: Sequence[Any] = (),
        *,
        count: int = 0,
        source: int | None = None,
        target: int | None = None,
    ) -> None:
        """Send a frame from a thread of its own: a thread that reads wires must never wait."""
        if self._writer is None:
            self._writer = threading.Thread(
                target=self._write, name="muster-join-writer", daemon=True
            )
            self._writer.start()
        self._queue.put(self._frame(kind, payload, count, source, target))

    def _frame(
        self,
        kind: Kind,
        payload: Sequence[Any],
        count: int,
        source: int | None,
        target: int | None,
    ) -> list[Any]:
        size = sum(len(piece) for piece in payload)
        source, target = self._me if source is None else source, target or 0
        return [_HEAD.pack(kind, source, target, count, size), *payload]

    def _send(self, pieces: list[Any]) -> None:
        total = sum(len(piece) for piece in pieces)
        with self._sending:
            # A vector of more pieces than the kernel takes is sent one by one.
            sent = self._sock.sendmsg(pieces) if len(pieces) < 64 else 0
            if sent == total:
                return
            for piece in pieces:
                if sent >= len(piece):
                    sent -= len(piece)
                else:
                    self._sock.sendall(memoryview(piece)[sent:])
                    sent = 0

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the thread that reads reports it
            while (pieces := self._queue.get()) is not None:
                self._send(pieces)

    # ---- receiving

    def head(self, seconds: float | None = None) -> FrameHead:
        """Wait for the next frame, and return its head.

        Raises:
            OSError: The connection is broken or closed; TimeoutError after `seconds`.
        """
        if seconds is not None:
            self._sock.settimeout(seconds)
        found = FrameHead(*_HEAD.unpack(receive(self._sock, _HEAD.size)))
        if seconds is not None:
            self._sock.settimeout(None)
        if found.size > MOST_BYTES:
            raise ConnectionError(f"a frame of {found.size:,} bytes")
        return found

    def read(self, size: int) -> bytearray:
        """Read bytes of a payload."""
        return receive(self._sock, size)

    def read_into(self, view: memoryview) -> None:
        """Read bytes of a payload to their place."""
        receive_into(self._sock, view)

    def text(self, head: FrameHead) -> Any:
        """Read a payload of JSON."""
        if head.size > _MOST_TEXT:
            raise ConnectionError(f"a text of {head.size:,} bytes")
        try:
            return json.loads(bytes(self.read(head.size)))
        except (ValueError, RecursionError) as error:
            raise ConnectionError(f"a text that is no JSON ({error})") from error

    def message(self, head: FrameHead) -> Message:
        """Read a payload of a head, a tree and buffers; checks sizes before it takes memory."""
        if head.size < _SIZES.size:
            raise ConnectionError("a message without its sizes")
        first, tree, count = _SIZES.unpack(self.read(_SIZES.size))
        if count > _MOST_BUFFERS:
            raise ConnectionError(f"a message of {count:,} buffers")
        sizes = [_SIZE.unpack(self.read(_SIZE.size))[0] for _ in range(count)]
        if head.size != _SIZES.size + count * _SIZE.size + first + tree + sum(sizes):
            raise ConnectionError("a message whose sizes contradict each other")
        parts = [self.read(size) for size in (first, tree, *sizes)]
        return Message(bytes(parts[0]), bytes(parts[1]), [memoryview(each) for each in parts[2:]])

    def is_closed(self) -> bool:
        """Whether the other end has closed the connection, and nothing is left to read."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Send what was posted, and close the connection."""
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join(_CLOSE_SECONDS)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        self._sock.close()


def text(value: Any) -> list[bytes]:
    """Return a payload of JSON."""
    return [json.dumps(value).encode()]


def packed(message: Message) -> list[Any]:
    """Return the payload of a message."""
    head, tree, buffers = message
    sizes = b"".join(_SIZE.pack(len(each)) for each in buffers)
    return [_SIZES.pack(len(head), len(tree), len(buffers)) + sizes + head + tree, *buffers]


def error_text(error: MusterError) -> list[bytes]:
    """Return an error as a payload."""
    what, why, fix = error.args
    return text({"lines": [what, why, fix], "failed": error.run_failed})


def failure_text(rank: int, error: BaseException) -> list[bytes]:
    """Return the failure of a rank as a payload, for the other ranks."""
    what, why, fix = summary(error), raised_at(error), f"look at the output of rank {rank}"
    if isinstance(error, MusterError):
        what, why, fix = error.args
    return error_text(ClusterError(f"rank {rank} failed: {what}", why, fix))


def error_of(told: Any) -> MusterError:
    """Return the error in a payload of ABORT."""
    lines = told.get("lines") if isinstance(told, dict) else None
    if not isinstance(lines, list) or len(lines) != 3:
        lines = ["another rank failed", "it did not say why", "look at the output of all ranks"]
    what, why, fix = (str(line)[:2000] for line in lines)
    failed = not isinstance(told, dict) or told.get("failed") is not False
    return (ClusterError if failed else OptionError)(what, why, fix)
