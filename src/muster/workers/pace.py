"""`Pace`: where a worker of a team is in its loop, so that another one can take its place.

    pace.meet(loop, COLLECTED)              all members are here
    pace.is_new(loop, MINIBATCH, 3)         False: the previous incarnation has done that already

A worker that replaces one that died does the loop again in which that one was, and leaves out what
it had written when it arrived last. What comes between two points is so made that doing
it twice does no harm.
"""

from muster.flow import Team

COLLECTED, PREPARED, MINIBATCH, ENDED = range(1, 5)
"""The points of a loop, in their order; there are many of the third kind."""

Point = tuple[int, int, int]


class Pace:
    """The points that one member of a team passes.

    Args:
        team: With whom.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        loop, point, number, first_update, updates, *_ = team.note
        self._before: Point = (loop, point, number)
        self.taken_over = team.arrivals > 0
        """Whether there was a worker here before, in the same run."""
        self.first_update = first_update
        """Updates of all loops before this one."""
        self.updates_before = updates
        """Updates that the worker before had done when it arrived last."""

    @property
    def loop(self) -> int:
        """The loop that the worker before was in."""
        return self._before[0]

    def begin(self, loop: int, updates: int) -> None:
        """Begin a loop, before which there were so many updates."""
        if not self.taken_over or loop > self.loop:
            self.first_update = updates

    def is_new(self, loop: int, point: int, number: int = 0) -> bool:
        """Whether nobody arrived at this point before."""
        return not self.taken_over or (loop, point, number) > self._before

    def meet(self, loop: int, point: int, number: int = 0, updates: int = 0) -> None:
        """Arrive at a point, after so many updates, and wait until every member has."""
        if self.is_new(loop, point, number):
            self._team.meet((loop, point, number, self.first_update, updates))
        elif (loop, point, number) == self._before:
            self._team.wait()
