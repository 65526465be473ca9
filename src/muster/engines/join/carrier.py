"""`Carrier`: how published bytes reach the other ranks, if not over the wires."""

from collections.abc import Callable, Sequence
from typing import Protocol

from muster.engines.join.arrays import RankArrays


class Carrier(Protocol):
    """Carries the publications of all ranks, in the order in which each rank publishes."""

    def begin(self, arrays: RankArrays, fail: Callable[[Exception], None]) -> None:
        """Start to carry what is published in these arrays; call `fail` if that is impossible."""

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Send these bytes to all ranks, and set this rank's counter on every one."""

    def close(self) -> None:
        """Stop; all ranks have published everything."""
