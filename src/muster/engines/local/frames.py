"""The bytes on a link.

    header (32 bytes) | head | body          body: buffer sizes | tree | buffers

A body up to INLINE bytes is in the frame; a larger one is in a block of the sender. Everything is
checked against these limits before it is used, so a reader never needs more than BUFFER bytes.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from muster.errors import MusterError

DATA, RELEASE, FORGET = 1, 2, 3
"""A message; a block was read; a block no longer exists."""

INLINE = 32 << 10
MAX_HEAD = 16 << 10
MAX_BODY = 1 << 40
MAX_BUFFERS = 1 << 20
ALIGN = 64
"""Alignment of buffers in a block, in bytes."""

_MAGIC = b"mu"
_HEADER = struct.Struct("<2sBBIIIQQ")
HEADER_SIZE = _HEADER.size
BUFFER = 2 * (HEADER_SIZE + MAX_HEAD + INLINE)


class FrameError(MusterError, ValueError):
    """Bytes on a link are not what a node sends."""


class Header(NamedTuple):
    """The fixed part of a frame."""

    kind: int
    new_block: bool
    head_size: int
    tree_size: int
    buffers: int
    body_size: int
    block: int
    """Number of the block that holds the body; 0 if the body is in the frame."""

    @property
    def frame_size(self) -> int:
        """Bytes of the frame, including this header."""
        return HEADER_SIZE + self.head_size + (0 if self.block else self.body_size)


class Layout(NamedTuple):
    """The positions of the parts of a body."""

    tree: int
    """Offset of the tree."""
    starts: tuple[int, ...]
    """Offset of each buffer."""
    size: int


def layout(tree_size: int, sizes: Sequence[int]) -> Layout:
    """Return the positions of the parts of a body."""
    tree = 8 * len(sizes)
    end = tree + tree_size
    starts = []
    for size in sizes:
        start = -(-end // ALIGN) * ALIGN
        starts.append(start)
        end = start + size
    return Layout(tree, tuple(starts), end)


def pack_header(
    kind: int,
    block: int = 0,
    head_size: int = 0,
    tree_size: int = 0,
    buffers: int = 0,
    body_size: int = 0,
    new_block: bool = False,
) -> bytes:
    """Return the header of a frame."""
    return _HEADER.pack(_MAGIC, kind, new_block, head_size, tree_size, buffers, body_size, block)


def read_header(data: memoryview, start: int = 0) -> Header:
    """Read the header at `start`, and check all its limits."""
    magic, kind, new_block, head, tree, buffers, body, block = _HEADER.unpack_from(data, start)
    sound = (
        magic == _MAGIC
        and kind in (DATA, RELEASE, FORGET)
        and new_block <= (1 if block else 0)
        and head <= MAX_HEAD
        and buffers <= MAX_BUFFERS
        and body <= (MAX_BODY if block else INLINE)
        and tree + 8 * buffers <= body
        and (kind == DATA or (block and not (head or body or new_block)))
    )
    if not sound:
        raise _malformed(f"its header is {bytes(data[start : start + HEADER_SIZE]).hex()}")
    return Header(kind, bool(new_block), head, tree, buffers, body, block)


def write_body(into: memoryview, where: Layout, tree: bytes, buffers: Sequence[memoryview]) -> None:
    """Write the parts of a body."""
    struct.pack_into(f"<{len(buffers)}Q", into, 0, *(buffer.nbytes for buffer in buffers))
    into[where.tree : where.tree + len(tree)] = tree
    for start, buffer in zip(where.starts, buffers, strict=True):
        into[start : start + buffer.nbytes] = buffer


def read_body(header: Header, body: memoryview) -> tuple[bytes, list[memoryview]]:
    """Return the tree, as a copy, and views of the buffers."""
    if len(body) < header.body_size:
        raise _malformed(f"it claims {header.body_size:,} bytes in a block of {len(body):,}")
    if not header.buffers:
        if header.tree_size != header.body_size:
            raise _malformed("its parts do not fill it")
        return bytes(body[: header.tree_size]), []
    sizes = struct.unpack_from(f"<{header.buffers}Q", body)
    if sum(sizes) > header.body_size:
        raise _malformed(f"its buffers are longer than its {header.body_size:,} bytes")
    where = layout(header.tree_size, sizes)
    if where.size != header.body_size:
        raise _malformed("its parts do not fill it")
    tree = bytes(body[where.tree : where.tree + header.tree_size])
    views = [body[start : start + size] for start, size in zip(where.starts, sizes, strict=True)]
    return tree, views


def _malformed(why: str) -> FrameError:
    return FrameError(
        "a frame is malformed", why, "make sure that all nodes run the same version of muster"
    )
