"""`Link`: one connection to one incarnation of another node.

Any thread may send: the bytes are written at once on the caller's thread, and only bytes that the
socket does not accept wait for the link thread. Only the link thread reads.
"""

import array
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from muster.engines.base import Delivery
from muster.engines.local import frames
from muster.engines.local.blocks import BlockPool, MappedBlocks, MemoryBlock

_FDS_AT_ONCE = 64
_ANCILLARY = socket.CMSG_SPACE(_FDS_AT_ONCE * array.array("i").itemsize)


class LocalParcel:
    """A message ready to be sent: as bytes, or in a block."""

    __slots__ = ("_pool", "block", "body", "buffers", "nbytes", "tree_size")

    def __init__(
        self, pool: BlockPool, tree_size: int, buffers: int, nbytes: int, body: bytes | MemoryBlock
    ) -> None:
        self._pool = pool
        self.tree_size = tree_size
        self.buffers = buffers
        self.nbytes = nbytes
        self.body = body if isinstance(body, bytes) else b""
        self.block = body if isinstance(body, MemoryBlock) else None

    def drop(self) -> None:
        """Release the copy: it will not be sent again."""
        block, self.block = self.block, None
        if block is not None:
            self._pool.drop(block)


def make_parcel(pool: BlockPool, tree: bytes, buffers: Sequence[memoryview]) -> LocalParcel:
    """Copy a message for sending: to a block of shared memory, unless it is small."""
    if not buffers and len(tree) <= frames.INLINE:
        return LocalParcel(pool, len(tree), 0, len(tree), tree)
    where = frames.layout(len(tree), [buffer.nbytes for buffer in buffers])
    if where.size <= frames.INLINE:
        body = bytearray(where.size)
        frames.write_body(memoryview(body), where, tree, buffers)
        return LocalParcel(pool, len(tree), len(buffers), where.size, bytes(body))
    block = pool.take(where.size)
    frames.write_body(block.view, where, tree, buffers)
    return LocalParcel(pool, len(tree), len(buffers), where.size, block)


class Link:
    """An authenticated connection to another node.

    Args:
        sock: The connection; this link closes it.
        peer: The node at its other end.
        incarnation: That node's incarnation.
        pool: Blocks of this process.
        want_write: Called when bytes remain that `flush` has to send.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: int,
        incarnation: int,
        pool: BlockPool,
        want_write: Callable[["Link"], None],
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.peer = peer
        self.incarnation = incarnation
        self._pool = pool
        self._want_write = want_write
        self._lock = threading.Lock()
        self._unsent: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._mapped = MappedBlocks()
        self._buffer = memoryview(bytearray(frames.BUFFER))
        self._filled = 0
        self._fds: deque[int] = deque()
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether this side has not closed it."""
        return self._open

    # ---- sending

    def send(self, head: bytes, parcel: LocalParcel | None) -> None:
        """Send a message."""
        if parcel is None:
            self._write(frames.pack_header(frames.DATA, head_size=len(head)) + head)
            return
        block = parcel.block
        if block is None:
            header = frames.pack_header(
                frames.DATA, 0, len(head), parcel.tree_size, parcel.buffers, len(parcel.body)
            )
            self._write(b"".join((header, head, parcel.body)))
            return
        new = self._pool.lend(block, self)
        header = frames.pack_header(
            frames.DATA,
            block.number,
            len(head),
            parcel.tree_size,
            parcel.buffers,
            parcel.nbytes,
            new,
        )
        self._write(header + head, (block.fd,) if new else ())

    def send_forget(self, block: int) -> None:
        """Tell the reader that a block of this process no longer exists."""
        self._write(frames.pack_header(frames.FORGET, block))

    def _write(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        with self._lock:
            if not self._open:
                return
            if fds:
                # A duplicate: the block may be closed before the socket accepts the descriptor.
                fds = tuple(map(os.dup, fds))
            self._unsent.append((memoryview(data), fds))
            left = len(self._unsent) > 1 or not self._send_some()
        if left:
            self._want_write(self)

    def flush(self) -> bool:
        """Send what can be sent without waiting; True if nothing is left."""
        with self._lock:
            return self._send_some()

    def _send_some(self) -> bool:
        unsent = self._unsent
        while unsent:
            data, fds = unsent[0]
            try:
                sent = socket.send_fds(self.sock, [data], fds) if fds else self.sock.send(data)
            except BlockingIOError:
                return False
            except OSError:
                self._discard_unsent()  # reading will find that the connection is lost
                return True
            for fd in fds:
                os.close(fd)
            if sent == len(data):
                unsent.popleft()
            else:
                unsent[0] = (data[sent:], ())
        return True

    def _discard_unsent(self) -> None:
        for _, fds in self._unsent:
            for fd in fds:
                os.close(fd)
        self._unsent.clear()

    # ---- receiving, on the link thread

    def read(self) -> Iterator[Delivery]:
        """Yield the messages that have arrived.

        Raises:
            EOFError: The other side has exited.
            FrameError: The other side sent something that no node sends.
        """
        try:
            count, ancillary, _, _ = self.sock.recvmsg_into(
                [self._buffer[self._filled :]], _ANCILLARY
            )
        except BlockingIOError:
            return
        except OSError as error:
            raise EOFError from error
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)
        if count == 0:
            raise EOFError
        self._filled += count
        start = 0
        while self._filled - start >= frames.HEADER_SIZE:
            header = frames.read_header(self._buffer, start)
            end = start + header.frame_size
            if end > self._filled:
                break
            delivery = self._take(header, self._buffer[start:end])
            start = end
            if delivery is not None:
                yield delivery
        left = self._filled - start
        if left and start:
            self._buffer[:left] = bytes(self._buffer[start : self._filled])
        self._filled = left

    def _take(self, header: frames.Header, frame: memoryview) -> Delivery | None:
        if header.kind == frames.RELEASE:
            self._pool.give_back(header.block, self)
            return None
        if header.kind == frames.FORGET:
            self._mapped.forget(header.block)
            return None
        head_end = frames.HEADER_SIZE + header.head_size
        head = bytes(frame[frames.HEADER_SIZE : head_end])
        if not header.block:
            # Copied, because the link's buffer is reused before the message is read.
            tree, buffers = frames.read_body(header, memoryview(bytes(frame[head_end:])))
            return Delivery(self.peer, head, tree, buffers, _nothing)
        if header.new_block:
            if not self._fds:
                raise frames.FrameError(
                    "a block arrived without its memory",
                    "no descriptor was sent with it",
                    "report it",
                )
            self._mapped.add(header.block, self._fds.popleft())
        view = self._mapped.view(header.block)
        if view is None:
            raise frames.FrameError(
                f"block {header.block} is not known", "it was never sent here", "report it"
            )
        tree, buffers = frames.read_body(header, view)
        release = frames.pack_header(frames.RELEASE, header.block)
        return Delivery(self.peer, head, tree, buffers, lambda: self._write(release))

    def close(self) -> None:
        """Close the connection, and take back the blocks that the other side had."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._discard_unsent()
            self.sock.close()
        while self._fds:
            os.close(self._fds.popleft())
        self._mapped.clear()
        self._pool.reader_gone(self)


def _nothing() -> None:
    """Do nothing: the message holds no block."""
