"""`Pace`: the position of a worker in its loop, so that another worker can replace it.

    pace.meet(loop, COLLECTED)              all members are here
    pace.is_new(loop, MINIBATCH, 3)         False: the previous incarnation has already done it

The replacement of a dead worker repeats the loop that the worker was in, and skips everything that
the worker had written when it arrived last. The code between two points is written so that running
it twice does no harm.
"""

from muster.flow import Team

COLLECTED, PREPARED, MINIBATCH, ENDED = range(1, 5)
"""The points of a loop, in order; there are many of the third kind."""

Point = tuple[int, int, int]


class Pace:
    """The points that one member of a team passes.

    Args:
        team: The team.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        loop, point, number, first_update, updates, *_ = team.note
        self._before: Point = (loop, point, number)
        self.taken_over = team.arrivals > 0
        """Whether this worker replaces one of the same run."""
        self.first_update = first_update
        """Updates of all loops before the current one."""
        self.updates_before = updates
        """Updates of the previous incarnation when it arrived last."""

    @property
    def loop(self) -> int:
        """The loop in which the previous incarnation stopped."""
        return self._before[0]

    def begin(self, loop: int, updates: int) -> None:
        """Begin a loop, after `updates` updates."""
        if not self.taken_over or loop > self.loop:
            self.first_update = updates

    def is_new(self, loop: int, point: int, number: int = 0) -> bool:
        """Whether the previous incarnation had not reached this point."""
        return not self.taken_over or (loop, point, number) > self._before

    def meet(self, loop: int, point: int, number: int = 0, updates: int = 0) -> None:
        """Arrive at a point, after `updates` updates, and wait until every member has arrived."""
        if self.is_new(loop, point, number):
            self._team.meet((loop, point, number, self.first_update, updates))
        elif (loop, point, number) == self._before:
            self._team.wait()
