"""A page of shared memory in which every node counts its progress, and which the parent reads.

No message is needed. So the parent notices a node whose threads cannot run (a C call that holds the
interpreter, a stopped process) as well as one whose loop waits forever. Each word has one writer.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

from muster.engines.memory import SharedMemory

STARTING, OUTSIDE, LOOPING, WAITING, SAVING = range(5)
"""Not linked yet; in `main` but not in a loop; in a loop; in a loop and waiting for other nodes;
saving to disk, which may be slow."""


class Row(NamedTuple):
    """The counts of one node."""

    counter: int
    """Increases as long as the node makes progress, or is able to."""
    state: int
    work: int = 0
    """Work of its main thread in this incarnation: loops, environment steps, arrivals."""
    mark: int = 0
    """How far the node is, by a count that continues across its incarnations; 0 for none."""


_WORDS = 8
"""Words of a node's row: one cache line, so that nodes do not slow each other down."""


class ProgressPage:
    """The counters of all nodes; a new process receives the page's memory."""

    def __init__(self, memory: SharedMemory, size: int) -> None:
        self._memory = memory
        self._size = size
        self.words = memory.view(max(size, 1) * _WORDS * 8).cast("q")

    @classmethod
    def create(cls, size: int) -> "ProgressPage":
        """Make a page for this many nodes."""
        return cls(SharedMemory.create(), size)

    def __reduce__(self) -> tuple[object, ...]:
        return ProgressPage, (self._memory, self._size)

    def fileno(self) -> int:
        """Return the descriptor of its memory."""
        return self._memory.fileno()

    def row(self, node: int) -> "ProgressRow":
        """Return the row to which a node writes."""
        return ProgressRow(self.words, node * _WORDS)

    def read(self, node: int) -> Row:
        """Return the counts of a node."""
        first = node * _WORDS
        return Row(*self.words[first : first + len(Row._fields)])

    def write(self, node: int, row: Row) -> None:
        """Write a row that was read elsewhere."""
        for place, value in enumerate(row, start=node * _WORDS):
            self.words[place] = value

    def reset(self, node: int) -> None:
        """Clear the row for a new incarnation."""
        self.write(node, Row(0, STARTING))

    def close(self) -> None:
        """Release the page."""
        self.words.release()
        self._memory.close()


class ProgressRow:
    """The row of one node. Only the node's own process writes to it."""

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._counter, self._state, self._work, self._mark = range(first, first + 4)

    def advance(self) -> None:
        """Count one more piece of work."""
        self._words[self._counter] += 1
        self._words[self._work] += 1

    def show_life(self) -> None:
        """Show that the node is alive while it waits."""
        self._words[self._counter] += 1

    def reach(self, mark: int) -> None:
        """Set how far the node is, by a count that continues across its incarnations."""
        self._words[self._mark] = mark

    def set_state(self, state: int) -> None:
        """Set the node's state."""
        self._words[self._state] = state
        self._words[self._counter] += 1


@dataclass
class Watch:
    """How long one node has made no progress."""

    counter: int = -1
    since: float = 0.0

    def seconds_without_progress(self, counter: int) -> float:
        """Return for how many seconds the counter has been the same."""
        now = time.monotonic()
        if counter != self.counter:
            self.counter = counter
            self.since = now
        return now - self.since
