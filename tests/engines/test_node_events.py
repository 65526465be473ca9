"""CONTRACT, sections Task and Parallel: events between nodes."""

import event_programs
import pytest

pytestmark = pytest.mark.timeout(600)

BURST = 10_000


@pytest.fixture(scope="module", params=["star", "mesh"])
def heard(run, request):
    got = run(event_programs.bursts, BURST, n=3, runner={"topology": request.param})
    return got


def test_no_event_of_three_bursts_is_lost_or_heard_twice_on_any_node(heard):
    for node in heard:
        assert node["lost"] == {0: 0, 1: 0, 2: 0}


def test_events_are_in_order_per_sender_and_the_sender_hears_its_own_once(heard):
    assert [node["in order"] for node in heard] == [True] * 3


def test_only_local_stays_here_and_only_remote_goes_to_all_others(heard):
    for me, node in enumerate(heard):
        others = [("remote", other) for other in range(3) if other != me]
        assert node["other"] == [("local", me), *others]


@pytest.mark.parametrize(("count", "size"), [(3000, 10), (300, 100_000)])
def test_nodes_that_emit_bursts_at_each_other_and_answer_do_not_lock_up(run, count, size):
    assert run(event_programs.echoes, count, size) == [(True, True)] * 2


def test_large_events_arrive_whole_and_in_order(run):
    expected = [(number, number, 1_000_000) for number in range(100)]
    assert run(event_programs.large_events, 100) == [expected, expected]


@pytest.fixture(scope="module")
def listened(run, place):
    return run(event_programs.listeners, runner={"log_dir": place / "logs"}), place / "logs"


def test_once_hears_one_event_of_another_node(listened):
    assert listened[0][1]["once"] == [0]


def test_off_ends_the_hearing_of_another_nodes_events(listened):
    assert listened[0][1]["off"] == [0]


def test_a_listener_that_raises_is_reported_and_the_next_event_arrives(listened):
    results, logs = listened
    assert results[1]["after the failed"] == results[1]["every"] == [0, 1, 2]
    assert "the listener is no good" in (logs / "node.1.log").read_text()


def test_a_listener_may_emit_in_turn(listened):
    assert [node["ping"] for node in listened[0]] == [list(range(101))] * 2


@pytest.fixture(scope="module")
def waited(run):
    return run(event_programs.waits_for_events)[1]


def test_wait_for_wakes_with_the_arguments_of_another_nodes_event(waited):
    assert waited["go"] == ((1,), {"key": "value"})


def test_wait_for_on_a_node_raises_timeout_error(waited):
    assert waited["timeout"] == ("TimeoutError", True)


@pytest.mark.parametrize("topology", ["star", "mesh"])
def test_events_of_a_nodes_last_loop_are_heard_by_all(run, topology):
    got = run(event_programs.emits_in_the_last_loop, n=3, runner={"topology": topology})
    assert got == [list(range(100))] * 3


def test_a_wait_for_that_finish_ends_does_not_fail_the_run(run):
    assert run(event_programs.finishes_while_another_waits_for_an_event)[0] == 0
