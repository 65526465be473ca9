"""The first part of every message between nodes: to whom it belongs, and its number there.

Each names the incarnation of the node that numbers the messages: numbers of a process that is
gone mean nothing to the one that replaced it.
"""

import msgspec

from muster.flow.registry import WireError


class BoardMessage(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """New values of some keys."""

    board: str
    number: int


class BoardAck(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """They were read."""

    board: str
    number: int
    incarnation: int


class StreamMessage(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The next message of a stream."""

    stream: str
    number: int
    wants_ack: bool


class StreamAck(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """All messages of a stream up to this one are done with."""

    stream: str
    number: int
    incarnation: int


class Bye(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The sender ends, and wants to hear nothing more."""


Head = BoardMessage | BoardAck | StreamMessage | StreamAck | Bye

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Head] = msgspec.msgpack.Decoder(Head)

encode = _encoder.encode


def decode(data: bytes) -> Head:
    """Return the head that `data` is."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise WireError(
            f"the head of a message cannot be read: {error}",
            "it was damaged, or made by another program",
            "install the same version of muster on every node",
        ) from error
