"""G1 and G4 of the fault catalogue: damaged and malicious messages.

The same code as benchmarks/faults/wire_fuzz.py, with fewer inputs, and the single refusals by name.
"""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from muster.flow.wire import WireError, buffer_sizes, pack, unpack

ROOT = Path(__file__).parents[2]


def test_nothing_but_a_wire_error_comes_of_20000_bad_messages():
    command = [sys.executable, "-m", "benchmarks.faults.wire_fuzz", "--inputs", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    figures = json.loads(done.stdout)
    assert figures["examples_of_violations"] == []
    assert figures["inputs"] == 20_000 and figures["canary_executions"] == 0
    assert figures["memory_growth_bytes"] < 10 << 20
    assert figures["most_memory_growth_in_one_input_bytes"] < 10 << 20
    assert figures["outcomes"]["truncated"]["refused"] > 500
    assert done.returncode == 0


def tree(body, sizes=()):
    return msgspec.msgpack.encode([1, list(sizes), body])


ARRAY = [7, "|u1", 0, 1]

REFUSED = {
    "nothing": (b"", "malformed"),
    "trailing bytes": (pack(1).tree + b"\xc0", "malformed"),
    "one of two elements": (b"\x92\x01\x90", "malformed|values to unpack"),
    "a length without content": (b"\x93\x01\x90\xdd\xff\xff\xff\xff", "nodes"),
    "many lengths without content": (b"\x93\x01\x90" + b"\xdc\xff\xff" * 5, "nodes"),
    "a map": (tree({}), "no tag"),
    "a map in a large tree": (tree(["x" * 20_000, {}]), "no message can have"),
    "an empty node": (tree([]), "no tag"),
    "a tag that is a bool": (tree([True]), "no tag"),
    "an unknown tag": (tree([99]), "unknown tag 99"),
    "a key twice": (tree([2, 1, "a", True, "b"]), "twice"),
    "an ordered key twice": (tree([3, None, 1, "a", 1, "b"]), "twice"),
    "a key alone": (tree([2, 1]), "without a value"),
    "an ordered key alone": (tree([3, None, 1]), "without a value"),
    "a list as a key": (tree([2, [0, 1], 2]), "no key has"),
    "a tensor in a key": (tree([2, [1, [11, "uint8", 0, 1]], 2], [1]), "no key has"),
    "a negative size": (tree(None, [-1]), "out of bounds"),
    "sizes that are bools": (tree(None, [True]), "out of bounds|malformed"),
    "sizes beyond all memory": (tree([7, "|u1", 0, 2**34 + 1], [2**34 + 1]), "more than"),
    "more buffers than arrays": (tree(None, [1]), "more buffers"),
    "a buffer twice": (tree([0, ARRAY, ARRAY], [1]), "not the next"),
    "a buffer that is not there": (tree([7, "|u1", 1, 1], [1]), "not the next"),
    "a size that is not the shape's": (tree([7, "|u1", 0, 2], [1]), "differ in size"),
    "two negative dimensions": (tree([7, "|u1", 0, -1, -1], [1]), "not a size"),
    "a dimension that is a float": (tree([7, "|u1", 0, 1.0], [1]), "not a size"),
    "a shape that overflows": (tree([7, "|u1", 0, 2**62, 4, 0], [0]), "too big"),
    "an empty tensor that overflows": (tree([11, "int8", 0, 2**63 - 1, 2, 0], [0]), "too big"),
    "65 dimensions": (tree([7, "|u1", 0, *[1] * 65], [1]), "64 dimensions"),
    "an object array": (tree([7, "|O8", 0, 1], [8]), "not allowed"),
    "a structured array": (tree([7, "i4,i4", 0, 1], [8]), "not allowed"),
    "a dtype of torch that is not listed": (tree([11, "qint8", 0, 1], [1]), "not allowed"),
    "an object scalar": (tree([8, "|O8", bytes(8)]), "not allowed"),
    "a scalar of another size": (tree([8, "<f4", bytes(8)]), "does not fit"),
    "a class by its import name": (tree([12, "os:system", "command", "true"]), "not registered"),
    "a big int that is a str": (tree([4, "1"]), "not an int"),
    "text that is no text": (tree([5, b"\xff"]), "codec can't decode"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_fault_is_named(case):
    content, message = REFUSED[case]
    buffers = []
    try:
        sizes = buffer_sizes(content)
        if sum(sizes) < 100:
            buffers = [memoryview(bytes(size)) for size in sizes]
    except WireError as error:
        assert "try: " in str(error)
    with pytest.raises(WireError, match=message):
        unpack(content, buffers)


@pytest.mark.parametrize("sizes", [[-1], [2**34 + 1], [2**33] * 3, [True], ["1"], [0] * 70_000])
def test_sizes_are_refused_before_memory_is_taken(sizes):
    with pytest.raises(WireError):
        buffer_sizes(tree(None, sizes))


def test_buffers_that_do_not_belong_to_a_tree_are_refused():
    content = tree([0, ARRAY], [1])
    for buffers in ([], [b""], [b"xy"], [b"x", b""]):
        with pytest.raises(WireError):
            unpack(content, [memoryview(buffer) for buffer in buffers])
    assert unpack(content, [memoryview(b"x")])[0].tolist() == [120]
