"""`Team`: nodes that share arrays and work in step.

    team = Team({"row": ((4, 100), "f4")})    the same on every node; zeros at first
    team["row"][...] = ...                    write your own part
    team.meet()                               now the parts of all nodes can be read

On one machine nothing is sent: a node that arrives increments its own word, and a waiting node
watches one word per other node. If nodes are on several machines, each machine has a copy of the
arrays, and the parts that a node has shown are sent to the others before its word is incremented:

    team.show("row", 2)                       others will read row 2 once this node has arrived

A node that was killed and restarted finds its words and arrays unchanged, with the note of its last
arrival, and continues from there. A node that is restarted on another machine finds there only the
parts that were shown (`moved`). A program outside a parallel run is a team of one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from muster.container import cores
from muster.engines.base import LIVED, ROW
from muster.engines.futex import Word
from muster.errors import OptionError, TaskError
from muster.flow.node import this_node

Shape = tuple[int, ...]

_LINE = 64
"""Bytes of a cache line: different nodes never write to the same one."""
_NOTE_WORDS = 7
_LIVED = LIVED // 8
"""The word of a node's row that holds its last incarnation on this machine, plus 1."""
_WORDS = ROW // 8
"""Words of a node: arrivals, two alternating notes, and its last incarnation here."""
_SPINS = 3_000
"""How often to read a word, for some 200 us, before a node sleeps: waking up takes longer than most
waits between two minibatches."""
_SLEEP_SECONDS = 0.1


class Team:
    """All nodes of a program, with arrays that each of them reads and writes.

    A program has one team: its arrays are the shared memory of the nodes.

    Args:
        fields: Shape and dtype of each array, by name. The same on every node.
    """

    def __init__(self, fields: Mapping[str, tuple[Shape, DTypeLike]]) -> None:
        node = this_node()
        self._node = node
        self.index = 0 if node is None else node.place.node_id
        """The number of this member."""
        self.size = members()
        """Number of members."""
        self.is_alone = node is None
        """Whether this is the only process of a program: no other process could replace it."""
        self.resumed = node is not None and node.place.incarnation > 0
        """Whether this node replaces one that died."""
        offsets, size = _offsets(fields, self.size * ROW)
        memory = memoryview(bytearray(size)) if node is None else node.shared_memory(size)
        self._base = np.frombuffer(memory, np.uint8).ctypes.data
        self._shown: list[tuple[int, int]] = []
        self.is_spread = node is not None and node.is_spread
        """Whether members are on several machines: then they see only parts that were shown."""
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, (shape, dtype) in fields.items():
            count = math.prod(shape)
            flat = np.frombuffer(memory, dtype, count, offsets[name])
            self._arrays[name] = flat.reshape(shape)
        self._words = memory[: self.size * ROW].cast("q")
        self._mine = self.index * _WORDS
        # If the team is spread, the engine increments the word once the others can see the parts.
        self._watched = [each for each in range(self.size) if each != self.index or self.is_spread]
        self._arrivals = self._words[self._mine]
        if node is not None:
            node.reach(self._arrivals)
        self.moved = False
        """Whether this node replaces one on another machine: only the parts that its predecessor
        has shown are here, and those of other nodes."""
        if node is not None and self.is_spread:
            incarnation = node.place.incarnation
            self.moved = self._words[self._mine + _LIVED] != incarnation
            self._words[self._mine + _LIVED] = incarnation + 1
        self._signals = [Word(memory, each * ROW) for each in range(self.size)]
        # If the team is spread, the wait is for a network, and the engine needs the core meanwhile.
        enough_cores = self.size <= cores() and not self.is_spread
        self._spins = _SPINS if enough_cores else 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an array."""
        return self._arrays[name]

    @property
    def arrivals(self) -> int:
        """How often this node has arrived, over all its incarnations."""
        return self._arrivals

    @property
    def note(self) -> tuple[int, ...]:
        """The note of its last arrival."""
        first = self._note_at(self.arrivals)
        return tuple(self._words[first : first + _NOTE_WORDS])

    def show(self, name: str, index: Any = ...) -> None:
        """Make `team[name][index]`, as it is now, visible to the others when this node arrives."""
        if self.is_spread:
            self._shown += _spans(self._arrays[name][index], self._base)

    def arrive(self, note: Sequence[int] = ()) -> None:
        """Announce that this node's part is written, and leave a note for a possible replacement.

        Writes before the counter become visible before it: x86 keeps the order of stores.
        """
        rest = _NOTE_WORDS - len(note)
        if rest < 0:
            what = f"a note of {len(note)} numbers is too long"
            raise OptionError(what, f"there is room for {_NOTE_WORDS}", "team.arrive(note[:7])")
        self._arrivals = arrivals = self._arrivals + 1
        first = self._note_at(arrivals)  # the other note stays intact until the counter is set
        for place, number in enumerate((*note, *(0,) * rest)):
            self._words[first + place] = number
        if self._node is not None:
            self._node.advance()
            self._node.reach(arrivals)
        if self.is_spread:
            assert self._node is not None
            noted = (8 * first, 8 * (first + _NOTE_WORDS))
            self._node.publish((*self._shown, noted), arrivals)
            self._shown.clear()
            return
        self._words[self._mine] = arrivals
        if self._watched:
            self._signals[self.index].wake()

    def wait(self, behind: int = 0) -> None:
        """Wait until every member has arrived as often as this one, less `behind`.

        Raises:
            TaskError: A member will never arrive, because the run has failed or ended.
        """
        words, arrivals = self._words, self._arrivals - behind
        for other in self._watched:
            word = other * _WORDS
            spins = self._spins
            while words[word] < arrivals and spins:
                spins -= 1
            if words[word] < arrivals:
                self._sleep(other, arrivals)

    def meet(self, note: Sequence[int] = ()) -> None:
        """Arrive, and wait for the others."""
        self.arrive(note)
        self.wait()

    def _note_at(self, arrivals: int) -> int:
        return self._mine + 1 + (arrivals % 2) * _NOTE_WORDS

    def _sleep(self, other: int, arrivals: int) -> None:
        node = self._node
        assert node is not None
        word, signal = other * _WORDS, self._signals[other]
        with node.waiting():
            while (seen := self._words[word]) < arrivals:
                # After a signal the others still arrive: they agree on when to end.
                ended = node.finish is not None and node.finish.signal is None
                if ended or node.dispatcher.is_gone(other):
                    raise TaskError(
                        f"node {other} will not arrive",
                        "it has left the run, or the run has failed",
                        "read the last lines of its log",
                    )
                signal.sleep(seen, _SLEEP_SECONDS)


def _spans(part: NDArray[Any], base: int) -> list[tuple[int, int]]:
    """Return the byte ranges of a part of an array, relative to the start of the memory."""
    if part.flags.c_contiguous:
        start = part.ctypes.data - base
        return [(start, start + part.nbytes)] if part.nbytes else []
    return [span for row in part for span in _spans(row, base)]


def members() -> int:
    """Return the number of members of this program's team."""
    node = this_node()
    return 1 if node is None else node.place.size


def _offsets(
    fields: Mapping[str, tuple[Shape, DTypeLike]], first: int
) -> tuple[dict[str, int], int]:
    """Return the offset of each array, and the total size."""
    offsets = {}
    for name, (shape, dtype) in fields.items():
        first = -(-first // _LINE) * _LINE
        offsets[name] = first
        first += math.prod(shape) * np.dtype(dtype).itemsize
    return offsets, max(first, 1)
