"""Whether a node that died is worth another life: alone, without any process."""

import pytest

from muster.engines.progress import LOOPING, OUTSIDE, WAITING, Row
from muster.engines.restart_policy import MOST_WITHOUT_PROGRESS, NodeFailure, RestartPolicy

KILLED = "it was ended by SIGKILL"


def dies(policy, work=10, mark=0, how=KILLED, hung=False, seconds=1.0, state=LOOPING):
    return policy.record_failure(NodeFailure(how, hung, seconds, Row(1, state, work, mark)))


def test_three_deaths_at_the_same_work_are_enough():
    policy = RestartPolicy(100)
    assert [dies(policy), dies(policy)] == [None, None]
    assert dies(policy) == (
        "it was ended by SIGKILL, 3 times in a row at the same place: "
        "10 steps of work after its start"
    )


def test_with_a_mark_the_first_of_them_may_have_begun_elsewhere():
    policy = RestartPolicy(100)
    assert dies(policy, work=4000, mark=7) is None
    assert dies(policy, work=20, mark=7) is None
    assert "same place: 20 steps" in dies(policy, work=20, mark=7)


@pytest.mark.parametrize("mark", [0, 7])
def test_deaths_at_random_places_are_survived(mark):
    policy = RestartPolicy(100)
    for number in range(9):
        assert dies(policy, work=number * 17 % 10, mark=mark) is None


def test_deaths_that_get_further_each_time_are_survived():
    policy = RestartPolicy(100)
    for mark in range(1, 90):
        assert dies(policy, work=20, mark=mark) is None


def test_deaths_of_another_kind_are_another_failure():
    policy = RestartPolicy(100)
    for how in (KILLED, "it was ended by SIGSEGV", KILLED, "it left with exit code 1"):
        assert dies(policy, how=how) is None


def test_hangs_are_of_one_kind_however_long_they_took_to_be_noticed():
    policy = RestartPolicy(100)
    assert dies(policy, how="no progress for 300.1 s", hung=True, seconds=400) is None
    assert dies(policy, how="no progress for 300.0 s", hung=True, seconds=400) is None
    assert "no progress for 300.2 s, 3 times" in dies(
        policy, how="no progress for 300.2 s", hung=True, seconds=400
    )


def test_who_only_waited_was_killed_from_outside():
    policy = RestartPolicy(100)
    for _ in range(50):
        assert dies(policy, mark=7, state=WAITING) is None


def test_no_progress_in_many_lives_is_given_up_though_each_ended_elsewhere():
    policy = RestartPolicy(100)
    for number in range(MOST_WITHOUT_PROGRESS - 1):
        assert dies(policy, work=number, mark=7) is None
    assert "none of its 10 incarnations got any further" in dies(policy, work=99, mark=7)


def test_restarts_are_limited_and_forgiven_by_a_minute_of_work():
    policy = RestartPolicy(2)
    assert [dies(policy, work=1), dies(policy, work=2)] == [None, None]
    assert dies(policy, work=3, seconds=61.0) is None
    assert dies(policy, work=4) is None
    assert dies(policy, work=5) == "it was ended by SIGKILL, and it was replaced 2 times already"


def test_who_never_comes_to_a_loop_is_given_up_after_five():
    policy = RestartPolicy(100)
    for _ in range(5):
        assert dies(policy, state=OUTSIDE) is None
    assert dies(policy, state=OUTSIDE) is not None
