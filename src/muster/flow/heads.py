"""The head of every message between nodes: its board or stream, and its number there.

An acknowledgement names the incarnation of the node that numbered the messages: numbers of a
process that has exited mean nothing to its replacement.
"""

import msgspec

from muster.flow.registry import WireError


class BoardMessage(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """New values of some keys."""

    board: str
    number: int


class BoardAck(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A reader has read the message."""

    board: str
    number: int
    incarnation: int


class StreamMessage(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The next message of a stream."""

    stream: str
    number: int
    wants_ack: bool


class StreamAck(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The reader has processed all messages of a stream up to this one."""

    stream: str
    number: int
    incarnation: int


class Bye(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The sender ends, and wants to receive no more messages."""


Head = BoardMessage | BoardAck | StreamMessage | StreamAck | Bye

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Head] = msgspec.msgpack.Decoder(Head)

encode = _encoder.encode


def decode(data: bytes) -> Head:
    """Decode a head."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise WireError(
            f"the head of a message cannot be read: {error}",
            "it was damaged, or made by another program",
            "install the same version of muster on every node",
        ) from error
