"""`Pace`: what a worker that takes another's place does again, and what it leaves out."""

import itertools

import pytest

from muster.flow import Team
from muster.workers.pace import COLLECTED, ENDED, MINIBATCH, PREPARED, Pace


class Book:
    """A team that only writes down what is asked of it."""

    def __init__(self, note=(0,) * 7, arrivals=0):
        self.note, self.arrivals, self.calls = note, arrivals, []

    def meet(self, note):
        self.note, self.arrivals = (*note, *(0,) * (7 - len(note))), self.arrivals + 1
        self.calls.append(("meet", note))

    def wait(self):
        self.calls.append(("wait",))


def points(loops, minibatches=3):
    for loop in range(loops):
        yield (loop, COLLECTED, 0)
        yield (loop, PREPARED, 0)
        yield from ((loop, MINIBATCH, number) for number in range(minibatches))
        yield (loop, ENDED, 0)


def test_points_of_a_loop_have_an_order():
    assert COLLECTED < PREPARED < MINIBATCH < ENDED
    assert list(points(4)) == sorted(points(4))


def test_a_first_worker_meets_at_every_point():
    team = Book()
    pace = Pace(team)
    assert not pace.taken_over
    for point in points(3):
        assert pace.is_new(*point)
        pace.begin(point[0], 3 * point[0])
        pace.meet(*point, updates=7)
    assert team.calls == [("meet", (*point, 3 * point[0], 7)) for point in points(3)]
    assert Pace(team).updates_before == 7


@pytest.mark.parametrize("at", range(2 * 6))
def test_who_takes_over_waits_where_the_other_was_and_meets_only_after_it(at):
    before = list(points(2))[at]
    team = Book((*before, 40, 0, 0, 0), arrivals=at + 1)
    pace = Pace(team)
    assert pace.taken_over and pace.loop == before[0] and pace.first_update == 40
    todo = [point for point in points(4) if point[0] >= before[0]]
    pace.begin(before[0], 43)  # it has seen some updates of this loop already
    assert pace.first_update == 40
    for point in todo:
        assert pace.is_new(*point) == (point > before)
        if point[1] == COLLECTED:
            pace.begin(point[0], 40 + 3 * (point[0] - before[0]))
        pace.meet(*point)
    later = [point for point in todo if point > before]
    wanted = [("meet", (*point, 40 + 3 * (point[0] - before[0]), 0)) for point in later]
    assert team.calls == [("wait",), *wanted]


def test_one_that_died_before_it_met_anybody_had_nothing_to_take_over():
    pace = Pace(Book(arrivals=0))
    assert not pace.taken_over and pace.is_new(0, COLLECTED)


def test_the_first_point_of_all_can_be_taken_over():
    team = Book((0, COLLECTED, 0, 0, 0, 0, 0), arrivals=1)
    pace = Pace(team)
    assert pace.taken_over and not pace.is_new(0, COLLECTED) and pace.is_new(0, PREPARED)


def test_a_team_keeps_what_a_pace_notes():
    team = Team({})
    for number, point in enumerate(points(5)):
        assert Pace(team).taken_over == (number > 0)
        pace = Pace(team)
        pace.begin(point[0], 100 + point[0])
        pace.meet(*point)
        after = Pace(team)
        assert (after.loop, after.first_update) == (point[0], 100 + point[0])
        is_new = [after.is_new(*each) for each in points(5)]
        assert is_new == [each > point for each in points(5)]


def test_every_worker_that_dies_on_the_way_leaves_each_meeting_done_once():
    everything = list(points(3))
    for first, second in itertools.combinations(range(len(everything)), 2):
        team = Book()
        for stop in (first, second, len(everything)):
            pace = Pace(team)
            loop = pace.loop if pace.taken_over else 0
            for number, point in enumerate(everything):
                if point[0] < loop or number > stop:
                    continue
                pace.begin(point[0], 0)
                pace.meet(*point)
        met = [call[1][:3] for call in team.calls if call[0] == "meet"]
        assert met == everything
