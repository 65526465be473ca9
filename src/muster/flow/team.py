"""`Team`: nodes that have arrays in common and go in step.

    team = Team({"row": ((4, 100), "f4")})    the same on every node; zeros at first
    team["row"][...] = ...                    write what is yours
    team.meet()                               now everybody's part can be read

On one machine nothing is sent: a node that arrives counts up a word of its own, and who waits
watches one word per other node. Where nodes are on several machines, each of these has a copy of
the arrays, and what a node has shown goes to the others before its word counts up:

    team.show("row", 2)                       others will read row 2 once this node has arrived

A node that was killed and started again finds its words and arrays as they were, with the note that
it left when it arrived last, and goes on from there. One that is started again on another machine
finds there what was shown (`moved`). A program by itself is a team of one.
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
"""Bytes of a cache line: what different nodes write is never in one."""
_NOTE_WORDS = 7
_LIVED = LIVED // 8
"""Word of a node's row that says who of its incarnations was the last on this machine, plus 1."""
_WORDS = ROW // 8
"""Of a node: arrivals, a note, where the other of two notes is, and who lived here."""
_SPINS = 3_000
"""Looks at a word, some 200 us of them, before a node sleeps: waking up takes longer than most
waits between two minibatches."""
_SLEEP_SECONDS = 0.1


class Team:
    """All nodes of a program, with arrays that each of them reads and writes.

    A program has one team: its arrays are the memory that the nodes have in common.

    Args:
        fields: Shape and dtype of each array, by name. The same on every node.
    """

    def __init__(self, fields: Mapping[str, tuple[Shape, DTypeLike]]) -> None:
        node = this_node()
        self._node = node
        self.index = 0 if node is None else node.place.node_id
        """Which member this node is."""
        self.size = members()
        """How many members there are."""
        self.is_alone = node is None
        """Whether this is the only process of a program: nobody could take its place."""
        self.resumed = node is not None and node.place.incarnation > 0
        """Whether this node takes the place of one that died."""
        offsets, size = _offsets(fields, self.size * ROW)
        memory = memoryview(bytearray(size)) if node is None else node.shared_memory(size)
        self._base = np.frombuffer(memory, np.uint8).ctypes.data
        self._shown: list[tuple[int, int]] = []
        self.is_spread = node is not None and node.is_spread
        """Whether members are on several machines: then they see only what was shown."""
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, (shape, dtype) in fields.items():
            count = math.prod(shape)
            flat = np.frombuffer(memory, dtype, count, offsets[name])
            self._arrays[name] = flat.reshape(shape)
        self._words = memory[: self.size * ROW].cast("q")
        self._mine = self.index * _WORDS
        # Where it is spread, the engine counts for a node, once the others can see its part.
        self._watched = [each for each in range(self.size) if each != self.index or self.is_spread]
        self._arrivals = self._words[self._mine]
        if node is not None:
            node.reach(self._arrivals)
        self.moved = False
        """Whether this node takes the place of one on another machine: only what that one has
        shown is here, and what others have."""
        if node is not None and self.is_spread:
            incarnation = node.place.incarnation
            self.moved = self._words[self._mine + _LIVED] != incarnation
            self._words[self._mine + _LIVED] = incarnation + 1
        self._signals = [Word(memory, each * ROW) for each in range(self.size)]
        # Where it is spread, the wait is for a network, and the engine needs the core meanwhile.
        enough_cores = self.size <= cores() and not self.is_spread
        self._spins = _SPINS if enough_cores else 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an array."""
        return self._arrays[name]

    @property
    def arrivals(self) -> int:
        """How often this node has arrived, in all its incarnations."""
        return self._arrivals

    @property
    def note(self) -> tuple[int, ...]:
        """What it noted when it arrived last."""
        first = self._note_at(self.arrivals)
        return tuple(self._words[first : first + _NOTE_WORDS])

    def show(self, name: str, index: Any = ...) -> None:
        """Have the others see `team[name][index]`, as it is now, once this node has arrived."""
        if self.is_spread:
            self._shown += _spans(self._arrays[name][index], self._base)

    def arrive(self, note: Sequence[int] = ()) -> None:
        """Say that this node's part is written, and note where it is for who may replace it.

        What was written before the counter is seen before it: x86 keeps the order of stores.
        """
        rest = _NOTE_WORDS - len(note)
        if rest < 0:
            what = f"a note of {len(note)} numbers is too long"
            raise OptionError(what, f"there is room for {_NOTE_WORDS}", "team.arrive(note[:7])")
        self._arrivals = arrivals = self._arrivals + 1
        first = self._note_at(arrivals)  # the other one stays whole until this one counts
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
        """Wait until every member has arrived as often as this one, or so much less often.

        Raises:
            TaskError: One of them will never come, because the run has failed or ended.
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
                # After a signal the others still come: they agree on when to end.
                ended = node.finish is not None and node.finish.signal is None
                if ended or node.dispatcher.is_gone(other):
                    raise TaskError(
                        f"node {other} will not come",
                        "it has left the run, or the run has failed",
                        "look at what it said last",
                    )
                signal.sleep(seen, _SLEEP_SECONDS)


def _spans(part: NDArray[Any], base: int) -> list[tuple[int, int]]:
    """Return where the bytes of a part of an array are, from the start of the memory."""
    if part.flags.c_contiguous:
        start = part.ctypes.data - base
        return [(start, start + part.nbytes)] if part.nbytes else []
    return [span for row in part for span in _spans(row, base)]


def members() -> int:
    """Return how many members a team of this program has."""
    node = this_node()
    return 1 if node is None else node.place.size


def _offsets(
    fields: Mapping[str, tuple[Shape, DTypeLike]], first: int
) -> tuple[dict[str, int], int]:
    """Return where each array begins, and the size of all of them."""
    offsets = {}
    for name, (shape, dtype) in fields.items():
        first = -(-first // _LINE) * _LINE
        offsets[name] = first
        first += math.prod(shape) * np.dtype(dtype).itemsize
    return offsets, max(first, 1)
