"""CONTRACT, section Parallel: nodes that raise, die or hang, and those that come back."""

import re
import time

import failure_programs
import pytest

from muster import NodeError

pytestmark = pytest.mark.timeout(600)

SOON = 40.0
"""Seconds to start, fail and end on a busy machine: far less than a node may hang by default."""

ROLES = {"learner": 1, "actor": 2}


def failed(run, *args, **kwargs):
    with pytest.raises(NodeError) as caught:
        run(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize("how", ["raises", "raises before run"])
def test_a_node_that_raises_ends_the_run_with_its_name_and_traceback(run, how):
    error = failed(run, failure_programs.fails, how, n=3, runner={"roles": ROLES})
    assert (error.node, error.role, error.cause) == (1, "actor", "raised")
    assert "failure_programs.py" in error.remote_traceback
    assert 'raise ValueError("no good at all")' in error.remote_traceback


def test_an_exception_that_cannot_be_sent_is_reported_all_the_same(run):
    error = failed(run, failure_programs.fails, "raises odd")
    assert (error.node, error.role, error.cause) == (1, None, "raised")
    assert "OddError" in error.remote_traceback


def test_a_node_that_raises_after_its_run_ends_the_run(run):
    assert failed(run, failure_programs.raises_after_run).cause == "raised"


def test_a_result_that_cannot_be_sent_is_an_error_that_names_the_node(run):
    assert failed(run, failure_programs.returns_what_cannot_be_sent).node == 1


@pytest.mark.parametrize("how", ["exits", "SIGKILL", "SIGSEGV"])
@pytest.mark.parametrize("by", [0, 1])
def test_a_node_that_dies_is_noticed_in_under_a_second(run, tmp_path, how, by):
    error = failed(run, failure_programs.fails, how, tmp_path, by)
    assert (error.node, error.cause) == (by, "killed")
    died = float((tmp_path / "failed").read_text())
    assert float((tmp_path / f"noticed.{1 - by}").read_text()) - died < 1.0


def test_a_node_that_leaves_with_sys_exit_ends_the_run(run):
    error = failed(run, failure_programs.fails, "sys.exit")
    assert error.node == 1 and error.cause in ("killed", "raised")


@pytest.mark.parametrize("how", ["sleeps", "spins", "stopped"])
def test_a_node_that_hangs_ends_the_run_and_one_that_waits_is_no_hang(run, how):
    started = time.monotonic()
    error = failed(run, failure_programs.hangs, how, runner={"hang_after": 1.0})
    assert (error.node, error.cause) == (1, "hung")
    assert 1.0 <= time.monotonic() - started < SOON


@pytest.fixture(scope="module", params=["exits", "SIGKILL"])
def restarted(run, place, request):
    return run(
        failure_programs.restarts,
        request.param,
        2,
        place,
        n=3,
        runner={"roles": ROLES, "on_failure": {"actor": "restart"}},
    )


def test_a_restarted_node_counts_its_incarnations(restarted):
    assert [node["incarnation"] for node in restarted] == [0, 2, 0]


def test_a_restarted_node_gets_the_newest_state_at_once(restarted):
    value, seconds = restarted[1]["seen"]
    assert value == "the weights" and seconds < 10.0


def test_a_restarted_node_was_not_resumed(restarted):
    assert [node["resumed"] for node in restarted] == [False] * 3


@pytest.mark.parametrize("quiet", [False, True])
def test_a_line_says_which_node_was_replaced_why_and_how_long_it_took(run, tmp_path, capfd, quiet):
    logs = tmp_path / "logs"
    options = {"roles": ROLES, "on_failure": "restart", "log_dir": logs, "quiet": quiet}
    got = run(failure_programs.restarts, "SIGKILL", 2, tmp_path, n=3, runner=options)
    assert got[0]["replacements"] == 2
    said = re.findall(r"^muster: (.*)$", capfd.readouterr().err, re.MULTILINE)
    logged = re.findall(r"^muster: (.*)$", (logs / "node.1.log").read_text(), re.MULTILINE)
    assert said == ([] if quiet else logged)
    for line in logged:
        assert re.fullmatch(
            r"node 1 \(actor\) was replaced: it was ended by SIGKILL; at work again after [\d.]+ s",
            line,
        )
    assert len(logged) == 2


def test_a_hung_node_is_restarted_too(run, tmp_path):
    got = run(
        failure_programs.restarts,
        "SIGSTOP",
        1,
        tmp_path,
        n=3,
        runner={"roles": ROLES, "on_failure": {"actor": "restart"}, "hang_after": 1.0},
    )
    assert [node["incarnation"] for node in got] == [0, 1, 0]


def test_a_resumed_node_is_told_so(run, tmp_path):
    got = run(
        failure_programs.restarts,
        "exits",
        1,
        tmp_path,
        n=3,
        runner={"roles": ROLES, "on_failure": {"actor": "resume"}},
    )
    assert [node["resumed"] for node in got] == [False, True, False]
    assert [node["incarnation"] for node in got] == [0, 1, 0]


def test_a_budget_of_restarts_that_is_used_up_ends_the_run(run, tmp_path):
    options = {"on_failure": {1: "restart"}, "max_restarts": 2}
    error = failed(run, failure_programs.dies_for_ever, tmp_path, runner=options)
    assert (error.node, error.cause) == (1, "killed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["life.0", "life.1", "life.2"]


def test_a_node_that_raises_ends_the_run_though_it_may_be_restarted(run):
    options = {"on_failure": "restart"}
    error = failed(run, failure_programs.dies_once_and_raises_then, runner=options)
    assert (error.node, error.cause) == (1, "raised")


def test_a_run_that_finishes_while_a_node_is_dead_ends(run, tmp_path):
    started = time.monotonic()
    try:
        got = run(
            failure_programs.finishes_while_another_is_dead,
            tmp_path,
            runner={"on_failure": "restart", "grace": 2.0},
        )
        assert got[0] == 0
    except NodeError as error:
        assert error.node == 1
    assert time.monotonic() - started < SOON


@pytest.mark.parametrize(("how", "cause"), [("SIGSEGV", "killed"), ("hangs", "hung")])
def test_the_same_failure_at_the_same_place_is_given_up_after_three_lives(
    run, tmp_path, engine, how, cause
):
    logs, place = tmp_path / "logs", tmp_path / "place"
    place.mkdir()
    options = {"on_failure": "restart", "max_restarts": 100, "hang_after": 1.0, "log_dir": logs}
    error = failed(run, failure_programs.fails_at_one_place, how, place, runner=options)
    assert (error.node, error.cause) == (1, cause)
    assert re.search("3 times in a row at the same place: \\d+ steps? of work", error.args[1])
    assert len(list(place.iterdir())) == 3
    if engine == "local":  # it was asked, or crashed, and wrote where it was
        log = (logs / "node.1.log").read_text()
        assert len(re.findall(r'failure_programs.py", line \d+ in work', log)) == 3


@pytest.mark.parametrize("how", ["thread", "pool", "stuck"])
def test_a_node_that_is_done_and_does_not_end_is_ended_and_says_why(run, engine, capfd, how):
    started = time.monotonic()
    assert run(failure_programs.does_not_end, how, runner={"grace": 1.0}) == [0, 1]
    seconds = time.monotonic() - started
    said = [line for line in capfd.readouterr().err.splitlines() if "muster: node 1" in line]
    if how == "pool":  # Python ends idle threads of pools itself
        assert said == []
    else:
        assert 1.0 <= seconds < SOON
        why = "its thread 'the-forgotten'" if (how, engine) == ("thread", "local") else "ended"
        assert len(said) == 1 and why in said[0], said


def test_a_node_that_is_replaced_knows_how_long_ago_it_began(run):
    ages = run(failure_programs.dies_after, 0.5, runner={"on_failure": {1: "restart"}})
    assert ages[0] == 0.0, "it was never replaced"
    assert ages[1] >= 0.5
