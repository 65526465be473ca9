"""`Lives`: how often a node has died, and whether another life of it is worth the while.

A node that is killed from outside dies anywhere, and is replaced. One whose own code hangs or
crashes does it again at the same place, for ever: that is noticed by how much work it had done.
"""

from dataclasses import dataclass, field

from muster.engines.progress import LOOPING, OUTSIDE, SAVING, STARTING, Row

HEALTHY_AFTER = 60.0
"""A node that got on for so many seconds has its restarts forgiven."""
MOST_STILLBORN = 5
"""A node that died so often in a row before its first loop will not do better the next time."""
MOST_AT_ONE_PLACE = 3
"""Nor will one that died so often in the same way at the same place."""
MOST_WITHOUT_PROGRESS = 10
"""Nor one that did not get any further in so many lives."""
_BACK_OFF = 0.1
_LONGEST_BACK_OFF = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one life."""

    how: str
    """`it was ended by SIGKILL`, `it made no progress for 300.1 s`."""
    hung: bool
    seconds: float
    """From its start to when it was last seen to get on."""
    at: Row
    """Where it was."""


@dataclass
class Lives:
    """Of one node.

    Args:
        most: Restarts that it may have, unless forgiven.
    """

    most: int
    restarts: int = field(default=0, init=False)
    """Since it was last healthy."""
    _stillborn: int = field(default=0, init=False)
    _deaths: list[Death] = field(default_factory=list, init=False)
    """At work, in a row, none of which got further than the first."""

    def died(self, death: Death) -> str | None:
        """Take note of a death. Returns why there is no point in another life, or None."""
        if death.seconds >= HEALTHY_AFTER:
            self.restarts = 0
        self.restarts += 1
        born = death.at.state not in (STARTING, OUTSIDE)
        self._stillborn = 0 if born else self._stillborn + 1
        # Who waits for others does nothing that could end it: that came from outside.
        if death.at.state in (LOOPING, SAVING) or death.hung:
            if self._deaths and death.at.mark > self._deaths[0].at.mark:
                self._deaths.clear()
            self._deaths.append(death)
        if self._is_at_one_place():
            work = f"{death.at.work} step{'s' * (death.at.work != 1)} of work"
            times = f"{MOST_AT_ONE_PLACE} times in a row"
            return f"{death.how}, {times} at the same place: {work} after it was started"
        if death.at.mark and len(self._deaths) >= MOST_WITHOUT_PROGRESS:
            return f"{death.how}, and it did not get any further in {len(self._deaths)} lives"
        if self.restarts > self.most or self._stillborn > MOST_STILLBORN:
            more = f", and it was replaced {self.restarts - 1} times already"
            return death.how + (more if self.restarts > 1 else "")
        return None

    def back_off(self) -> float:
        """Return how long to wait before it is started again: not at all at first."""
        if self.restarts <= 1:
            return 0.0
        return min(_BACK_OFF * 2.0 ** (self.restarts - 2), _LONGEST_BACK_OFF)

    def _is_at_one_place(self) -> bool:
        last = self._deaths[-MOST_AT_ONE_PLACE:]
        kinds = {("" if each.hung else each.how, each.at.mark) for each in last}
        if len(last) < MOST_AT_ONE_PLACE or len(kinds) > 1:
            return False
        # The first of them may have begun its life elsewhere, if there is a mark to tell the place.
        alike = last[1:] if last[0].at.mark else last
        return len({each.at.work for each in alike}) == 1
