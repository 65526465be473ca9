"""CONTRACT, section What moves between nodes: experience, in order, no loss, no duplicate."""

import channel_programs
import pytest

pytestmark = pytest.mark.timeout(600)


def test_items_of_many_writers_on_two_channels_are_in_order_and_complete(run):
    got = run(channel_programs.many_writers, 400, n=3)[0]
    for items in got.values():
        assert len(items) == 800
        for writer in (1, 2):
            assert [n for node, n in items if node == writer] == list(range(400))


@pytest.mark.parametrize("size", [10, 25_000])
def test_what_a_writer_had_put_before_it_was_killed_is_read_once_and_in_order(run, size, tmp_path):
    options = {"on_failure": {1: "restart"}}
    got = run(channel_programs.killed_writer, 20, size, tmp_path, runner=options)[0]
    assert got == [(life, number) for life in range(3) for number in range(20)]


@pytest.fixture(scope="module")
def full(run, place):
    return run(channel_programs.full_channel, place)


def test_a_full_channel_makes_put_wait_and_time_out(full):
    assert full[1]["put"] == [True] * 4 and full[1]["timeout"]


def test_what_put_gave_up_is_not_delivered_and_a_read_makes_room(full):
    assert full[0]["got"] == [0, 1, 2, 3, "later"] and full[1]["later"] is True


def test_get_raises_timeout_error(full):
    assert full[0]["get timeout"] is True


@pytest.fixture(scope="module")
def after_finish(run):
    return run(channel_programs.channel_after_finish, n=3)


def test_put_returns_false_when_the_run_finishes_first(after_finish):
    assert after_finish[1] == {"put": False, "put again": False}


def test_get_returns_none_when_the_run_finishes_first(after_finish):
    assert after_finish[2]["get"] is None


def test_what_is_left_in_a_channel_can_be_read_after_finish(after_finish):
    assert after_finish[2]["left"] == [0, 1, 2, None] and after_finish[2]["rest"] == []


def test_waiting_in_a_channel_is_no_hang(run):
    got = run(channel_programs.channel_wait_is_no_hang, runner={"hang_after": 1.0})
    assert got == ["well", "well"]


def test_two_channels_can_be_waited_for_at_once(run):
    got = run(channel_programs.two_channels_at_once)[0]
    assert got == [(0, 1), (1, 0), (0, 1), "timeout", "refused", False]
