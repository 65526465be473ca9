"""Notices two middleware that overlap and write one key of ctx: which value stays would be luck.

Only programs that overlap pay for it: their contexts are `TrackedContext`. A write is charged to
the step that runs, found through a context variable, and to each overlapping group around it.
`setdefault` is no write, because it never replaces a value; nor is anything on the way back, which
has a fixed order.
"""

import itertools
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

from muster.errors import MusterWarning
from muster.framework.context import Context

Writes = dict[object, set[int]]
"""Key -> the members of an overlapping group (by their number) that wrote it in this loop."""


class KeyWriter(NamedTuple):
    """Who is running: a member of an overlapping group, and the member around that one, if any."""

    writes: Writes
    member: int
    outer: "KeyWriter | None"


CURRENT_WRITER: ContextVar[KeyWriter | None] = ContextVar("muster_current_writer", default=None)


class TrackedContext(Context):
    """A context that knows who wrote what."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        # Saying again that this loop is the last loses nothing; taking it back might.
        says_it_again = key == "finish" and value == self["finish"]
        writer = None if says_it_again else CURRENT_WRITER.get()
        while writer is not None:
            writer.writes.setdefault(key, set()).add(writer.member)
            writer = writer.outer
        super().__setitem__(key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several keys, as dict.update does."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]  # dict overloads it
        self.update(other)
        return self


def warn_of_races(
    writes: Writes,
    names: Sequence[str],
    ordered: Callable[[int, int], bool],
    warned: set[tuple[object, int, int]],
) -> None:
    """Warn of each key that two members wrote with no order between them, once."""
    for key, members in writes.items():
        for one, other in itertools.combinations(sorted(members), 2):
            if ordered(one, other) or (key, one, other) in warned:
                continue
            warned.add((key, one, other))
            first, second = names[one], names[other]
            warnings.warn(
                f"{first!r} and {second!r} both write ctx.{key} and run at the same time: which "
                f"value stays is luck; order them: task.use({second}, after={first}), or "
                f"task.serial({first}, {second})",
                MusterWarning,
                stacklevel=2,
            )
