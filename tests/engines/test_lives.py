"""Whether a node that died is worth another life: alone, without any process."""

import pytest

from muster.engines.lives import MOST_WITHOUT_PROGRESS, Death, Lives
from muster.engines.progress import LOOPING, OUTSIDE, WAITING, Row

KILLED = "it was ended by SIGKILL"


def dies(lives, work=10, mark=0, how=KILLED, hung=False, seconds=1.0, state=LOOPING):
    return lives.died(Death(how, hung, seconds, Row(1, state, work, mark)))


def test_three_deaths_at_the_same_work_are_enough():
    lives = Lives(100)
    assert [dies(lives), dies(lives)] == [None, None]
    assert dies(lives) == (
        "it was ended by SIGKILL, 3 times in a row at the same place: "
        "10 steps of work after it was started"
    )


def test_with_a_mark_the_first_of_them_may_have_begun_elsewhere():
    lives = Lives(100)
    assert dies(lives, work=4000, mark=7) is None
    assert dies(lives, work=20, mark=7) is None
    assert "same place: 20 steps" in dies(lives, work=20, mark=7)


@pytest.mark.parametrize("mark", [0, 7])
def test_deaths_at_random_places_are_survived(mark):
    lives = Lives(100)
    for number in range(9):
        assert dies(lives, work=number * 17 % 10, mark=mark) is None


def test_deaths_that_get_further_each_time_are_survived():
    lives = Lives(100)
    for mark in range(1, 90):
        assert dies(lives, work=20, mark=mark) is None


def test_deaths_of_another_kind_are_another_failure():
    lives = Lives(100)
    for how in (KILLED, "it was ended by SIGSEGV", KILLED, "it left with exit code 1"):
        assert dies(lives, how=how) is None


def test_hangs_are_of_one_kind_however_long_they_took_to_be_noticed():
    lives = Lives(100)
    assert dies(lives, how="no progress for 300.1 s", hung=True, seconds=400) is None
    assert dies(lives, how="no progress for 300.0 s", hung=True, seconds=400) is None
    assert "no progress for 300.2 s, 3 times" in dies(
        lives, how="no progress for 300.2 s", hung=True, seconds=400
    )


def test_who_only_waited_was_killed_from_outside():
    lives = Lives(100)
    for _ in range(50):
        assert dies(lives, mark=7, state=WAITING) is None


def test_no_progress_in_many_lives_is_given_up_though_each_ended_elsewhere():
    lives = Lives(100)
    for number in range(MOST_WITHOUT_PROGRESS - 1):
        assert dies(lives, work=number, mark=7) is None
    assert "did not get any further in 10 lives" in dies(lives, work=99, mark=7)


def test_restarts_are_limited_and_forgiven_by_a_minute_of_work():
    lives = Lives(2)
    assert [dies(lives, work=1), dies(lives, work=2)] == [None, None]
    assert dies(lives, work=3, seconds=61.0) is None
    assert dies(lives, work=4) is None
    assert dies(lives, work=5) == "it was ended by SIGKILL, and it was replaced 2 times already"


def test_who_never_comes_to_a_loop_is_given_up_after_five():
    lives = Lives(100)
    for _ in range(5):
        assert dies(lives, state=OUTSIDE) is None
    assert dies(lives, state=OUTSIDE) is not None
