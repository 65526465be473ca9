"""CONTRACT, sections Context and Parallel: what a loop shares, and what arrives where."""

import pytest
import sharing_programs

pytestmark = pytest.mark.timeout(600)

MIB = 2**20


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("star", [[1, 2], [0], [0]]),
        ("mesh", [[1, 2], [0, 2], [0, 1]]),
        ("alone", [[], [], []]),
    ],
)
def test_what_a_node_shares_reaches_its_neighbours_and_nobody_else(run, topology, expected):
    got = run(sharing_programs.share_own, expected, n=3, runner={"topology": topology})
    assert got == [[f"v{node}" for node in nodes] for nodes in expected]


@pytest.fixture(scope="module")
def shared_all(run):
    return run(sharing_programs.share_what_can_travel, [])


def test_where_share_was_never_called_all_that_can_be_sent_is(shared_all):
    assert shared_all[0]["keys"] - {"finish"} == {"number", "text"}


@pytest.mark.parametrize("key", ["open_file", "callback"])
def test_a_value_that_cannot_travel_is_named_in_one_warning(shared_all, key):
    assert len([text for text in shared_all[1]["warnings"] if key in text]) == 1


def test_a_filter_for_another_node_is_no_reason_to_warn(shared_all):
    assert shared_all[0]["warnings"] == []


def test_a_value_that_cannot_travel_stays_here(shared_all):
    assert shared_all[1]["stayed"]


@pytest.fixture(scope="module")
def shared_named(run):
    return run(sharing_programs.share_what_can_travel, ["number", "callback"])


def test_share_sends_what_it_names_and_nothing_else(shared_named):
    assert shared_named[0]["keys"] == {"number"}


def test_a_named_value_that_cannot_travel_is_in_one_warning_and_others_in_none(shared_named):
    (text,) = shared_named[1]["warnings"]
    assert "callback" in text and "open_file" not in text


@pytest.fixture(scope="module")
def sent_values(run):
    return run(sharing_programs.send_values)


@pytest.mark.parametrize("name", sorted(sharing_programs.values()))
def test_every_value_arrives_as_the_type_it_was_and_bit_equal(sent_values, name):
    assert name not in sent_values[1]


def test_what_arrives_can_be_written_to(sent_values):
    assert "writable" not in sent_values[1]


def test_what_the_receiver_writes_does_not_change_the_senders(sent_values):
    assert sent_values[0] == {}


def test_what_arrived_is_private_to_each_node(run):
    assert run(sharing_programs.private_values, n=3) == [[], [5.0, 5.0], [0.0, 0.0]]


@pytest.fixture(scope="module")
def snapshots(run):
    return run(sharing_programs.whole_messages, 2000)[0]


def test_a_snapshot_holds_keys_of_one_loop_always(snapshots):
    assert len(snapshots[0]) > 1
    assert [pair for pair in snapshots[0] if pair[0] != pair[1]] == []


def test_values_never_get_older(snapshots):
    first = [pair[0] for pair in snapshots[0]]
    assert first == sorted(first) and first[-1] == 1999


def test_source_is_the_node_a_value_came_from(snapshots):
    assert snapshots[1] == 1


def test_a_key_that_was_sent_once_is_not_lost_among_newer_messages(snapshots):
    assert snapshots[2] == "once"


@pytest.fixture(scope="module")
def board(run):
    return run(sharing_programs.read_the_board)[0]


@pytest.mark.parametrize("way", ["wait", "attribute", "item", "get", "above"])
def test_a_key_of_parallel_ctx_can_be_read(board, way):
    assert board[way] is True


def test_parallel_ctx_reads_like_a_context(board):
    assert board["get absent"] == (None, 3)
    assert board["in"] == (True, False)
    assert board["iteration"] == ["x"]
    assert board["source"] == 1


@pytest.mark.parametrize(
    ("read", "error"), [("absent attribute", "AttributeError"), ("absent item", "KeyError")]
)
def test_an_absent_key_is_an_error_of_the_usual_kind(board, read, error):
    assert error in board[read]


@pytest.mark.parametrize("read", ["timeout", "timeout above"])
def test_wait_raises_timeout_error(board, read):
    assert "TimeoutError" in board[read]


def test_wait_returns_none_when_the_run_finishes_first(run):
    assert run(sharing_programs.wait_for_what_never_comes)[1] == [None, True]


@pytest.fixture(scope="module")
def slow(run):
    loops = 1500
    (reader_memory, seen), (sender_memory, _) = run(sharing_programs.slow_reader, loops, MIB)
    return {"reader": reader_memory, "sender": sender_memory, "seen": seen, "loops": loops}


def test_a_slow_reader_sees_the_newest_and_never_a_backlog(slow):
    assert slow["seen"][-1] >= slow["loops"] - 1
    assert len(set(slow["seen"])) < slow["loops"] / 4


@pytest.mark.parametrize("side", ["sender", "reader"])
def test_memory_stays_flat_whatever_the_speeds(slow, side):
    memory = slow[side]
    early = max(memory[: len(memory) // 4 + 1])
    assert max(memory) - early < 40 * MIB, f"{(max(memory) - early) / MIB:.0f} MiB more"


def test_what_a_node_shared_last_is_there_after_it_has_left(run, tmp_path):
    assert run(sharing_programs.reads_after_the_sender_left, tmp_path)[1] == [9]


def test_a_node_that_starts_late_gets_the_newest_state_at_once(run):
    value, seconds = run(sharing_programs.starts_late)[1]
    assert value == "early" and seconds < 10.0
