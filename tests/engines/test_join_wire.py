"""Frames between ranks: what arrives is what was sent, and nothing else is believed."""

import socket
import struct
import threading

import pytest

from muster.engines.base import ROW
from muster.engines.join import wire as wires
from muster.engines.join.arrays import RankArrays
from muster.engines.join.wire import Kind, Message, Wire, error_of, packed
from muster.errors import ClusterError

pytestmark = pytest.mark.timeout(60)
AT = 2 * ROW
SIZE = AT + 64


@pytest.fixture
def ends():
    """The two ends of a wire, over loopback: its options are those of TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        here, _ = listener.accept()
    first, second = Wire(here, 0, 1), Wire(there, 1, 0)
    yield first, second
    first.close()
    second.close()


def counter(memory, rank):
    return struct.unpack_from("<q", memory, rank * ROW)[0]


def test_a_publication_arrives_at_its_place_with_its_counter(ends):
    here, there = ends
    mine, theirs = RankArrays(2), RankArrays(2)
    sent, found = mine.make(SIZE), theirs.make(SIZE)
    sent[AT : AT + 4], sent[AT + 20 : AT + 23] = b"grad", b"ent"
    here.send(Kind.PUBLISH, mine.payload([(AT, AT + 4), (AT + 20, AT + 23)]), count=7)
    theirs.take(there, there.head())
    assert bytes(found[AT:]) == bytes(sent[AT:]) and counter(found, 0) == 7


def test_a_publication_that_comes_before_the_arrays_is_kept(ends):
    here, there = ends
    mine, theirs = RankArrays(2), RankArrays(2)
    sent = mine.make(SIZE)
    for number in (1, 2):
        sent[AT] = number
        here.send(Kind.PUBLISH, mine.payload([(AT, AT + 1)]), count=number)
        theirs.take(there, there.head())
    found = theirs.make(SIZE)
    assert found[AT] == 2 and counter(found, 0) == 2


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack("<I", 1) + struct.pack("<QQ", SIZE - 2, SIZE + 2) + b"abcd",
        struct.pack("<I", 1) + struct.pack("<QQ", AT + 4, AT) + b"",
        struct.pack("<I", 1) + struct.pack("<QQ", AT, AT + 4) + b"ab",
        struct.pack("<I", 1 << 30),
        b"ab",
    ],
    ids=["outside", "backwards", "short", "many", "nothing"],
)
def test_an_impossible_publication_is_refused_and_writes_nothing(ends, payload):
    here, there = ends
    arrays = RankArrays(2)
    memory = arrays.make(SIZE)
    here.send(Kind.PUBLISH, [payload], count=1)
    with pytest.raises(ConnectionError):
        arrays.take(there, there.head())
    assert bytes(memory) == bytes(SIZE)


def test_a_message_arrives_as_it_was_and_large_frames_in_many_pieces(ends):
    here, there = ends
    parts = [bytes([number % 256]) * 1000 for number in range(3000)]
    message = Message(b"head", b"tree", parts)
    sender = threading.Thread(target=here.send, args=(Kind.MESSAGE, packed(message)))
    sender.start()
    found = there.message(there.head())
    sender.join()
    assert (found.head, found.tree) == (b"head", b"tree")
    assert [bytes(part) for part in found.buffers] == parts


def test_sizes_are_checked_before_memory_is_taken(ends, monkeypatch):
    here, there = ends
    monkeypatch.setattr(wires, "MOST_BYTES", 100)
    here.send(Kind.MESSAGE, [bytes(200)])
    with pytest.raises(ConnectionError, match="200 bytes"):
        there.head()


def test_a_message_whose_sizes_contradict_each_other_is_refused(ends):
    here, there = ends
    payload = packed(Message(b"", b"tree", [b"buffer"]))
    here.send(Kind.MESSAGE, [*payload, b"more"])
    with pytest.raises(ConnectionError, match="contradict"):
        there.message(there.head())


@pytest.mark.parametrize("told", [None, [], {}, {"lines": "x"}, {"lines": [1, 2]}])
def test_any_text_of_a_failed_rank_is_three_lines(told):
    error = error_of(told)
    assert isinstance(error, ClusterError) and len(error.args) == 3


def test_a_closed_wire_is_told_from_an_idle_one(ends):
    here, there = ends
    assert not here.is_closed()
    there.close()
    assert here.is_closed()
