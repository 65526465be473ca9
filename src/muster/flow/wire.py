"""The codec between Python values and bytes: a small tree, and the raw memory of arrays.

    value -> pack -> tree, buffers ... -> buffer_sizes(tree) -> unpack(tree, buffers) -> value

A tree is msgpack of [PROTOCOL, sizes of the buffers, body]. In a body, None, bool, float, str,
bytes and 64-bit ints stand for themselves; any other value is an array that begins with a tag:

    LIST, TUPLE  items...          DICT  key, value, ...      ORDERED  metadata, key, value, ...
    BIG_INT      bytes             TEXT  bytes                BYTES    buffer, size
    ARRAY, TENSOR  dtype, buffer, dimensions...               SCALAR   dtype, bytes
    DATA         name, names of fields, value...              NUMPY_STR, NUMPY_BYTES  bytes

A value arrives with the type that was sent, or `pack` rejects it: subclasses (IntEnum, NamedTuple,
defaultdict, masked arrays, Parameter), bytearray, sets, objects. Nothing is pickled, and no name in
a message is imported or called. An object that is referenced twice arrives as two objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from muster.flow.registry import (
    CannotTravelError,
    Refusal,
    WireError,
    malformed,
    register_dataclass,
)
from muster.flow.wire_format import PROTOCOL, check_head, checked
from muster.flow.wire_pack import LIKELY, SURELY, Packer, cannot_travel, limit
from muster.flow.wire_unpack import Unpacker

__all__ = [
    "PROTOCOL",
    "CannotTravelError",
    "Packed",
    "WireError",
    "buffer_sizes",
    "can_travel",
    "pack",
    "register_dataclass",
    "unpack",
]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_head = msgspec.msgpack.Decoder(tuple[int, list[int], msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as bytes. The buffers are the memory of its arrays: send or copy before writing."""

    tree: bytes
    buffers: tuple[memoryview, ...]
    """Flat, C-contiguous, one byte per item; some may be empty."""

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers together."""
        return sum([buffer.nbytes for buffer in self.buffers])


def pack(value: object, name: str = "value") -> Packed:
    """Return `value` as a tree and buffers.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, dict, OrderedDict, registered
            dataclasses, NumPy arrays and scalars, torch tensors on the CPU (which arrive detached).
        name: The name of the value in error messages, such as `ctx`.

    Raises:
        CannotTravelError: A part of `value` is of another type, or too large; names its place.
    """
    try:
        try:
            packer = Packer(LIKELY)
            tree = _encode((PROTOCOL, packer.sizes, packer.fold(value, 0)))
        except (OverflowError, UnicodeEncodeError):
            packer = Packer(SURELY)
            tree = _encode((PROTOCOL, packer.sizes, packer.fold(value, 0)))
        limit(packer, tree)
    except Refusal as refusal:
        raise cannot_travel(refusal, name) from None
    return Packed(tree, tuple(packer.buffers))


def can_travel(value: object) -> bool:
    """Return whether `pack` accepts this value; the exception of `pack` names the reason."""
    try:
        pack(value)
    except CannotTravelError:
        return False
    return True


def buffer_sizes(tree: bytes) -> tuple[int, ...]:
    """Return the bytes of each buffer of a tree, before any memory is allocated.

    Raises:
        WireError: The tree is malformed, or it or its buffers exceed a limit.
    """
    tree = checked(tree)
    try:
        protocol, sizes, _ = _decode_head(tree)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise malformed(f"its tree is malformed ({error})") from None
    check_head(protocol, sizes)
    return tuple(sizes)


def unpack(tree: bytes, buffers: Sequence[memoryview]) -> object:
    """Return the value; it has its own memory, and `buffers` may be reused.

    Raises:
        WireError: The tree is malformed or exceeds a limit, or the buffers do not match it.
    """
    tree = checked(tree)
    try:
        head = _decode(tree)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise malformed(f"its tree is malformed ({error})") from None
    try:
        protocol, sizes, body = head
        if type(head) is not list or type(sizes) is not list or type(protocol) is not int:
            raise malformed("it does not begin with the sizes of its buffers")
        check_head(protocol, sizes)
        if len(sizes) != len(buffers):
            raise malformed(f"it needs {len(sizes)} buffers, and there are {len(buffers)}")
        unpacker = Unpacker(buffers)
        value = unpacker.unfold(body, 0)
        if unpacker.taken != len(buffers):
            raise malformed("it has more buffers than arrays")
    except WireError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise malformed(f"{type(error).__name__}: {error}") from error
    return value
