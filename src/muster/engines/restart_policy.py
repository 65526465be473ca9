"""`RestartPolicy`: counts the failures of one node, and decides whether to restart it.

A node that is killed from outside fails at random places, and is restarted. A node whose own code
hangs or crashes fails at the same place every time: the policy compares how much work it had done.
"""

from dataclasses import dataclass, field

from muster.engines.progress import LOOPING, OUTSIDE, SAVING, STARTING, Row

HEALTHY_AFTER = 60.0
"""A node that made progress for so many seconds is healthy: its restarts are counted from zero."""
MOST_FAILED_STARTS = 5
"""Failures in a row before the first loop; then the node is given up."""
MOST_AT_ONE_PLACE = 3
"""The same limit for failures of the same kind at the same place."""
MOST_WITHOUT_PROGRESS = 10
"""The same limit for incarnations that got no further than the first of them."""
_BACK_OFF = 0.1
_LONGEST_BACK_OFF = 5.0


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """How one incarnation of a node ended."""

    how: str
    """`it was ended by SIGKILL`, `it made no progress for 300.1 s`."""
    hung: bool
    seconds: float
    """Seconds from its start to its last progress."""
    at: Row
    """Its counts when it failed."""


@dataclass
class RestartPolicy:
    """The restarts of one node.

    Args:
        most: Maximum number of restarts since it was last healthy.
    """

    most: int
    restarts: int = field(default=0, init=False)
    """Number of restarts since it was last healthy."""
    _failed_starts: int = field(default=0, init=False)
    _failures: list[NodeFailure] = field(default_factory=list, init=False)
    """Consecutive failures while working; none got further than the first."""

    def record_failure(self, failure: NodeFailure) -> str | None:
        """Record a failure. Returns why the node is given up, or None to restart it."""
        if failure.seconds >= HEALTHY_AFTER:
            self.restarts = 0
        self.restarts += 1
        has_worked = failure.at.state not in (STARTING, OUTSIDE)
        self._failed_starts = 0 if has_worked else self._failed_starts + 1
        # A node that waits for others runs none of its own code: the cause is elsewhere.
        if failure.at.state in (LOOPING, SAVING) or failure.hung:
            if self._failures and failure.at.mark > self._failures[0].at.mark:
                self._failures.clear()
            self._failures.append(failure)
        if self._is_at_one_place():
            work = f"{failure.at.work} step{'s' * (failure.at.work != 1)} of work"
            times = f"{MOST_AT_ONE_PLACE} times in a row"
            return f"{failure.how}, {times} at the same place: {work} after its start"
        if failure.at.mark and len(self._failures) >= MOST_WITHOUT_PROGRESS:
            return (
                f"{failure.how}, and none of its {len(self._failures)} incarnations got any further"
            )
        if self.restarts > self.most or self._failed_starts > MOST_FAILED_STARTS:
            more = f", and it was replaced {self.restarts - 1} times already"
            return failure.how + (more if self.restarts > 1 else "")
        return None

    def back_off(self) -> float:
        """Return the seconds to wait before the restart; 0 for the first one."""
        if self.restarts <= 1:
            return 0.0
        return min(_BACK_OFF * 2.0 ** (self.restarts - 2), _LONGEST_BACK_OFF)

    def _is_at_one_place(self) -> bool:
        last = self._failures[-MOST_AT_ONE_PLACE:]
        kinds = {("" if each.hung else each.how, each.at.mark) for each in last}
        if len(last) < MOST_AT_ONE_PLACE or len(kinds) > 1:
            return False
        # The first failure may have had another starting point, if a mark identifies the place.
        alike = last[1:] if last[0].at.mark else last
        return len({each.at.work for each in alike}) == 1
