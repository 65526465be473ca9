"""`Pulse`: whether ranks make progress, so that nobody waits for ever for one that hangs.

    each rank, once a second   BEAT: a count that rises with every loop, environment step and wait
    the others                 a count that has not risen for `seconds`: that rank hangs

As on one machine (`hang_after`), a rank that waits for others, saves, or is outside of its loop
does not count as hung. A process that is stopped, or whose interpreter is stuck, sends no beats.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_SECONDS = 1.0


class Pulse:
    """The progress of this rank, and of those whose beats arrive here.

    Args:
        seconds: Maximum seconds without progress.
        now: The clock.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._count = 0
        self._excused = 0
        self._looping = False
        self._beaten = -BEAT_SECONDS
        self._heard: dict[int, tuple[int, float]] = {}

    def advance(self) -> None:
        """Count progress of the main thread."""
        self._count += 1

    def looping(self, is_looping: bool) -> None:
        """Record that the main thread enters or leaves its loop."""
        self._looping = is_looping

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Within this block the rank waits or saves, which may take any time."""
        self._excused += 1
        try:
            yield
        finally:
            self._excused -= 1

    def beat(self) -> int | None:
        """Return the count to send, once a second; else None."""
        if self._now() - self._beaten < BEAT_SECONDS:
            return None
        self._beaten = self._now()
        if self._excused or not self._looping:
            self._count += 1
        return self._count

    def heard(self, rank: int, count: int) -> None:
        """Record the beat of a rank."""
        if self._heard.get(rank, (-1, 0.0))[0] != count:
            self._heard[rank] = count, self._now()

    def forget(self, rank: int) -> None:
        """Expect no more beats of a rank, which is done."""
        self._heard.pop(rank, None)

    def hung(self) -> int | None:
        """Return a rank that hangs, or None."""
        for rank, (_, since) in list(self._heard.items()):
            if self._now() - since > self.seconds:
                return rank
        return None
