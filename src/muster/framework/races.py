"""Detects overlapping middleware that write the same key of ctx, so that the result is random.

Only programs that overlap pay for the check: their contexts are `TrackedContext`. A write is
attributed to the running step, found through a context variable, and to each overlapping group
around it. `setdefault` does not count as a write, because it never replaces a value. Nor does any
write on the way back, which has a fixed order.
"""

import itertools
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

from muster.errors import MusterWarning
from muster.framework.context import Context

Writes = dict[object, set[int]]
"""Key -> the members of an overlapping group (by index) that wrote it in this loop."""


class KeyWriter(NamedTuple):
    """The running member of an overlapping group, and the member around it, if any."""

    writes: Writes
    member: int
    outer: "KeyWriter | None"


CURRENT_WRITER: ContextVar[KeyWriter | None] = ContextVar("muster_current_writer", default=None)


class TrackedContext(Context):
    """A context that records which member wrote which key."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        # Setting `finish` again to the same value loses nothing; changing it might.
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
    """Warn, once, of each key that two unordered members wrote."""
    for key, members in writes.items():
        for one, other in itertools.combinations(sorted(members), 2):
            if ordered(one, other) or (key, one, other) in warned:
                continue
            warned.add((key, one, other))
            first, second = names[one], names[other]
            warnings.warn(
                f"{first!r} and {second!r} both write ctx.{key} and run at the same time: which "
                f"value remains is undefined; order them: task.use({second}, after={first}), or "
                f"task.serial({first}, {second})",
                MusterWarning,
                stacklevel=2,
            )
