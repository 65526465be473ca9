"""G1 and G4: messages that are damaged, or made to do harm, given to the codec in great number.

    python -m benchmarks.faults.wire_fuzz --json benchmarks/results/wire_fuzz.json

It needs Linux, which tells the peak of a process's memory and forgets it on demand.

Each is refused with a WireError, or read as a value that could have been sent. Nothing else may be
raised, no pickle may run, no input may take long, and memory must not grow. The test in tests/flow
does the same with fewer inputs. Exit code 1 if anything was violated.
"""

import argparse
import collections
import contextlib
import gc
import json
import os
import pickle
import platform
import random
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

import muster
from muster.flow.wire import Packed, WireError, buffer_sizes, pack, register_dataclass, unpack

Input = tuple[str, bytes, list[memoryview]]

SLOW = 2.0
"""Seconds that one small input may take: beyond this it counts as a hang."""
MOST_MEMORY = 10 << 20
"""Bytes by which the process may grow while it reads one input, and over all of them."""
SMALL = 1 << 20
"""Buffers up to this size are really handed over; a transport would allocate larger ones too."""


@register_dataclass
@dataclass(frozen=True)
class Sample:
    """A dataclass that may travel."""

    version: int
    data: Any


class Canary:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def good_messages() -> list[Packed]:
    """Return messages with every kind of node in them."""
    values: list[Any] = [
        {"train_iter": 3},
        [None, True, -1, 2**63, 2**200, 0.1, float("nan"), "text", "\ud800", b"bytes"],
        {(1, (b"a", None)): {"a": (1, [2, (3, {})])}, np.int64(4): 5, 2**99: 6, 0.5: 7},
        {"obs": np.arange(12, dtype=np.float32).reshape(3, 4), "done": np.zeros(3, bool)},
        [np.array("2020", "M8[ns]"), np.array(["ab", "c"]), np.array([b"x"]), np.zeros((0, 3))],
        [np.float16(1), np.datetime64("2020", "s"), np.str_("s"), np.bytes_(b"b"), np.bool_(1)],
        torch.nn.Linear(2, 3).state_dict(),
        [torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor(1), torch.zeros(0)],
        [Sample(1, [Sample(2, np.ones(2, ">i4"))]), collections.OrderedDict(a=1)],
        [bytes(1500), list(range(40)), {str(number): number for number in range(40)}],
    ]
    return [pack(value) for value in values]


def damaged(message: Packed) -> Iterator[Input]:
    """Cut a message at every byte, and flip every bit of it."""
    tree, buffers = message.tree, list(message.buffers)
    for length in range(len(tree)):
        yield "truncated", tree[:length], buffers
    yield "trailing bytes", tree + b"\xc0", buffers
    yield "doubled", tree + tree, buffers
    for bit in range(8 * len(tree)):
        flipped = bytearray(tree)
        flipped[bit // 8] ^= 1 << bit % 8
        yield "bit flipped", bytes(flipped), buffers
    # A message may be unpacked with any buffers, and a transport that has a fault gives any.
    if buffers:
        yield "buffer missing", tree, buffers[:-1]
    yield "buffer too many", tree, [*buffers, memoryview(b"x")]
    for index, buffer in enumerate(buffers):
        wrong = [memoryview(bytes(buffer) + b"x"), memoryview(bytes(buffer)[:-1])]
        for other in wrong if buffer.nbytes else wrong[:1]:
            yield "buffer length", tree, [*buffers[:index], other, *buffers[index + 1 :]]


def crafted(canary: bytes) -> Iterator[Input]:
    """Yield what an enemy who knows the format would send."""

    def message(kind: str, body: Any, *buffers: bytes, sizes: Any = None) -> Input:
        wanted = [len(buffer) for buffer in buffers] if sizes is None else sizes
        tree = msgspec.msgpack.encode([1, wanted, body])
        return kind, tree, [memoryview(buffer) for buffer in buffers]

    claims = (2**32 - 1, 2**31, 2**28, 2**16, 2**16 - 1, 100)
    for claim in claims:
        for head in b"\xc6\xc9\xdb\xdd\xdf":
            bomb = bytes([head]) + struct.pack(">I", claim)
            yield "length bomb", bomb, []
            yield "length bomb", b"\x93\x01\x90" + bomb, []
            yield "length bomb", b"\x93\x01" + bomb + b"\x01", []
            yield "length bomb", b"\x93\x01\x90" + bomb * 500, []
            yield "length bomb", b"\x93\x01\x90\xdd\x00\x00\x80\x00" + bomb + bytes(40_000), []
    for head in b"\xc5\xc8\xda\xdc\xde":
        yield "length bomb", b"\x93\x01\x90" + bytes([head, 255, 255]) * 900, []
    for depth in (62, 63, 64, 65, 66, 200, 900, 1100, 5000, 100_000):
        for level in (b"\x92\x00", b"\x92\x01", b"\x93\x02\x01", b"\x93\x02", b"\x91", b"\x81"):
            yield "deep nesting", b"\x93\x01\x90" + level * depth + b"\xc0", []
    yield "deep nesting", b"\x93\x01\x90" + b"\x92\x00" * 1_000_000, []
    many = 1_200_000
    for item in (b"\x90", b"\x91\x00", b"\x80", b"\xcb12345678"):
        length = b"\xdd" + struct.pack(">I", many + 1)
        yield "many nodes", b"\x93\x01\x90" + length + b"\x00" + item * many, []
    huge = (-1, -4, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
    for size in huge:
        for tag, dtype in ((7, "<f4"), (11, "float32"), (11, "bfloat16"), (7, "|S1")):
            for shape in ([size], [size, 0], [0, size, size], [size, size], [size, 4], [1, size]):
                yield message("shape", [tag, dtype, 0, *shape], b"")
                yield message("shape", [tag, dtype, 0, *shape], bytes(16))
        yield message("size", [7, "|u1", 0, size], sizes=[size])
        yield message("size", [6, 0, size], sizes=[size])
        yield message("size", None, sizes=[2**33, 2**33, 1])
        yield message("index", [7, "|u1", size, 1], b"x")
    for dims in (64, 65, 200):
        yield message("shape", [7, "|u1", 0, *[1] * dims], b"x")
        yield message("shape", [11, "uint8", 0, *[1] * dims], b"x")
    for odd in (1.0, True, "1", None, [1], b"1"):
        yield message("shape", [7, "|u1", 0, odd], b"x")
        yield message("shape", [11, "uint8", 0, odd], b"x")
    for index in (1, 2, "0", None, True, 0.0, [0]):
        yield message("index", [7, "|u1", index, 1], b"x")
    array = [7, "|u1", 0, 1]
    yield message("index", [0, array, array], b"x")
    yield message("index", [0, array, array], b"x", b"y")
    yield message("index", [0, [7, "|u1", 1, 1], array], b"x", b"y")
    yield message("index", None, b"x")
    wrong: list[Any] = [[-1], [True], [1.0], ["1"], [[1]], None, 1, {}, [0] * 70_000, [0] * 1000]
    for sizes in wrong:
        yield message("sizes", None, sizes=sizes)
    dtypes = ["O", "|O", "|O8", "object", "V8", "|V8", "i4,i4", "f4", "<f16", "<g", "(2,)<i4", "T"]
    dtypes += ["<U0", "|S0", "<U99999999999", "<U99999999", "|S999999999", "<M8[x]", "<M8[0ns]"]
    dtypes += ["<M8[999999999as]", "", "<", "\0", "<f4\0", "<f4 ", "builtins", "qint8", "float32"]
    strange: list[Any] = [None, 1, b"<f4", ["<f4"], {"names": []}, [["a", "<i4"]]]
    for code in [*dtypes, *strange]:
        for tag in (7, 11):
            yield message("dtype", [tag, code, 0, 1], bytes(8))
            yield message("dtype", [tag, code, 0, 0], b"")
            yield message("dtype", [tag, code, 0], bytes(4))
        yield message("dtype", [8, code, bytes(8)])
        yield message("dtype", [8, code, b""])
    for pairs in ([1, 0, 1, 0], [1, 0, True, 0], [1, 0, 1.0, 0], ["a", 0, "b", 0, "a", 0]):
        yield message("same key twice", [2, *pairs])
        yield message("same key twice", [3, None, *pairs])
    for key in ([0], [2], [3, None], [1, [0]], array, [11, "uint8", 0, 1], [1, [11, "bool", 0]]):
        yield message("key", [2, key, 0], b"x")
        yield message("key", [3, None, key, 0], b"x")
    name = f"{Sample.__module__}:{Sample.__qualname__}"
    names = ["os:system", "builtins:eval", "muster.flow.wire:Packed", "", name, "x" * 10_000]
    for each in [*names, 1, None, [name]]:
        for fields in ("version,data", "data,version", "version", "__class__,data", "", 1, None):
            for values in ([], [1], [1, 2], [1, 2, 3]):
                yield message("dataclass", [12, each, fields, *values])
    for tag in [*range(-3, 20), 2**40, True, 0.0, None, "list", [0], b"", {}]:
        for rest in ([], [1], [b"x"], [1, 1], ["a", b"b"], [None, 1, 2], ["<f4", 0]):
            yield message("tag", [tag, *rest], b"x")
            yield message("tag", [0, [tag, *rest]])
            yield message("tag", [2, [tag, *rest], 1])
    extensions = [msgspec.msgpack.Ext(3, b"x"), msgspec.msgpack.Ext(-1, bytes(4))]
    foreigners: list[Any] = [{}, {1: 2}, [], *extensions]
    for foreign in foreigners:
        yield message("foreign", foreign)
        yield message("foreign", [0, foreign])
        yield message("foreign", [2, "a", foreign])
    for text in (b"\xff", b"\xed\xa0", b"\xf8\x88\x80\x80\x80"):
        for tag in (5, 9):
            yield message("text", [tag, text])
        yield "text", b"\x93\x01\x90" + bytes([0xA0 + len(text)]) + text, []
    for payload in (canary, b"\x80\x04" + canary, canary * 40):
        yield "pickle", payload, []
        yield "pickle", b"\x93\x01\x90" + payload, []
        for body in (payload, [4, payload], [5, payload], [9, payload], [8, "|O8", payload]):
            yield message("pickle", body)
        for dtype in ("O", "|O8", "|u1"):
            yield message("pickle", [7, dtype, 0, len(payload)], payload)
    for start in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""):
        yield "other protocol", start, []


def random_inputs(rng: random.Random, good: list[Packed]) -> Iterator[Input]:
    """Yield random bytes, random nodes, and good messages with several bytes changed, for ever."""
    while True:
        yield "random bytes", rng.randbytes(rng.randrange(200)), []
        yield "random body", b"\x93\x01\x90" + rng.randbytes(rng.randrange(60)), []
        message = rng.choice(good)
        changed = bytearray(message.tree)
        for _ in range(rng.randrange(1, 5)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        yield "bytes changed", bytes(changed), list(message.buffers)
        other = rng.choice(good).tree
        cut, join = rng.randrange(len(message.tree)), rng.randrange(len(other))
        yield "spliced", message.tree[:cut] + other[join:], list(message.buffers)
        yield "random nodes", random_node(rng), [memoryview(b"12345678")]


def random_node(rng: random.Random) -> bytes:
    """Return a tree that is msgpack, with tags of the format, and otherwise makes no sense."""

    def node(depth: int) -> Any:
        leaves = [None, True, 0, 1, 8, -1, 2**40, 0.5, "a", "<f8", "float64", "|u1", b"x", b""]
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(leaves)
        return [rng.randrange(14), *[node(depth - 1) for _ in range(rng.randrange(5))]]

    sizes = rng.choice([[], [8], [8, 8]])
    return msgspec.msgpack.encode([1, sizes, node(4)])


def memory(peak: bool) -> int:
    """Return the bytes of memory the process has, or the most it had since it was forgotten."""
    name = "VmHWM:" if peak else "VmRSS:"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def forget_peak() -> None:
    """Let the peak of the memory be what it is now."""
    Path("/proc/self/clear_refs").write_text("5")


def try_one(kind: str, tree: bytes, buffers: list[memoryview]) -> str:
    """Give one input to the codec and return what came of it; anything odd is a violation."""
    offers = [buffers]  # to unpack also what a transport would have dropped by now
    try:
        sizes = buffer_sizes(tree)
        if not kind.startswith("buffer") and sum(sizes) <= SMALL and len(sizes) <= 100:
            offers.append([memoryview(bytes(size)) for size in sizes])
    except WireError:
        pass
    accepted = False
    for each in offers:
        try:
            value = unpack(tree, each)
        except WireError:
            continue
        pack(value)  # whatever is accepted is something that can be sent
        accepted = True
    return "accepted" if accepted else "refused"


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Try all damaged and crafted inputs, and random ones up to `count`; return the figures."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "ComplexHalf")  # torch says this of the dtype as such
    rng = random.Random(seed)
    good = good_messages()
    outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    violations: list[str] = []
    slowest = 0.0
    most, most_for = 0, ""
    with tempfile.TemporaryDirectory() as directory:
        trap = Path(directory) / "canary"
        canary = pickle.dumps(Canary(trap))
        for message in good:
            if try_one("good", message.tree, list(message.buffers)) != "accepted":
                violations.append("a good message was refused")

        def inputs() -> Iterator[Input]:
            yield from crafted(canary)
            for message in good:
                yield from damaged(message)
            yield from random_inputs(rng, good)

        for each in crafted(canary):  # once, so that what Python keeps for itself is kept
            with contextlib.suppress(Exception):
                try_one(*each)
        gc.collect()
        at_first = memory(peak=False)
        began = time.perf_counter()
        for number, (kind, tree, buffers) in enumerate(inputs()):
            if number >= count:
                break
            measured = number < 2500 or number % 50 == 0
            if measured:
                before = memory(peak=False)
                forget_peak()
            start = time.thread_time()  # what others do on this machine does not count
            try:
                outcome = try_one(kind, tree, buffers)
            except BaseException as error:
                outcome = "violation"
                violations.append(f"{kind}: {type(error).__name__}: {error} from {tree[:80]!r}")
            seconds = time.thread_time() - start
            slowest = max(slowest, seconds)
            if measured and (more := memory(peak=True) - before) > most:
                most, most_for = more, kind
            if seconds > SLOW:
                violations.append(f"{kind}: took {seconds:.1f} s, {tree[:80]!r}")
            outcomes[kind][outcome] += 1
        took = time.perf_counter() - began
        grown = memory(peak=False) - at_first
        executions = int(trap.exists())
        pickle.loads(canary)  # a trap that cannot close would prove nothing
        if not trap.exists():
            violations.append("the canary does not work")
    if max(grown, most) > MOST_MEMORY:
        violations.append(f"memory grew by {grown} bytes in all, {most} for one ({most_for})")
    for kind in (
        "truncated",
        "trailing bytes",
        "doubled",
        "buffer missing",
        "buffer length",
        "buffer too many",
    ):
        if outcomes[kind]["accepted"]:
            violations.append(f"{kind}: accepted")
    return {
        "inputs": sum(counter.total() for counter in outcomes.values()),
        "violations": len(violations),
        "canary_executions": executions,
        "memory_growth_bytes": grown,
        "most_memory_growth_in_one_input_bytes": most,
        "most_memory_growth_was_for": most_for,
        "slowest_input_seconds": round(slowest, 4),
        "seconds": round(took, 2),
        "outcomes": {kind: dict(counter) for kind, counter in sorted(outcomes.items())},
        "examples_of_violations": violations[:20],
    }


def main() -> None:
    """Fuzz, print the figures, and write them where it was asked for."""
    parser = argparse.ArgumentParser(
        description="Give damaged and malicious messages to the codec."
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="how many (100000)")
    parser.add_argument("--seed", type=int, default=0, help="of the random ones (0)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    summary = {
        "command": f"python -m benchmarks.faults.wire_fuzz --inputs {options.inputs} "
        f"--seed {options.seed}",
        "muster": muster.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "msgspec": msgspec.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        **fuzz(options.inputs, options.seed),
    }
    text = json.dumps(summary, indent=2) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text)
    sys.exit(summary["violations"] > 0 or summary["canary_executions"] > 0)


if __name__ == "__main__":
    main()
