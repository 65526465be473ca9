"""CONTRACT, section Parallel: how a run ends."""

import time

import finish_programs
import pytest

from muster import NodeError

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(
    scope="module",
    params=[
        (by, how, topology)
        for by, topology in [(0, "star"), (2, "star"), (1, "mesh")]
        for how in ("ctx.finish", "max_step")
    ],
    ids=lambda case: "-".join(map(str, case)),
)
def ended(run, request):
    by, how, topology = request.param
    return by, run(finish_programs.finishes, by, how, n=3, runner={"topology": topology})


def test_a_node_that_finishes_ends_every_node(ended):
    by, nodes = ended
    assert nodes[by]["loops"] == 8
    assert [node["finish"] for node in nodes] == [True] * 3


def test_code_after_the_yield_sees_finish_in_the_last_loop_of_every_node(ended):
    for node in ended[1]:
        assert len(node["after yield"]) == node["loops"]
        # Word that comes on the way back is seen by the rest of it, and then by a whole loop.
        assert node["after yield"][-1] is True and not any(node["after yield"][:-2])


def test_exit_listeners_are_called_once_on_every_node(ended):
    assert [node["exit"] for node in ended[1]] == [1, 1, 1]


def test_finish_that_comes_on_the_way_back_is_seen_by_all_code_after_a_yield(run):
    assert run(finish_programs.finish_on_the_way_back)[0][-1] is True


def test_alone_a_node_that_finishes_ends_only_itself(run):
    got = run(finish_programs.alone, n=3, runner={"topology": "alone"})
    assert got == [5, 10, 15]


@pytest.mark.parametrize("topology", ["star", "mesh"])
def test_finish_is_visible_in_a_loop_that_is_still_running(run, topology):
    got = run(finish_programs.tutorial_waiting_loop, n=3, runner={"topology": topology})
    assert got[1:] == [[True], [True]]


def test_end_own_ends_only_itself(run, tmp_path):
    (loops, ended), own = run(finish_programs.ends_only_itself, tmp_path)
    assert own == (3, 0)
    assert ended == 20 and loops >= 20


@pytest.mark.parametrize("how", ["sleeps", "spins"])
def test_a_node_that_never_looks_is_ended_after_the_grace_time(run, tmp_path, how):
    started = time.monotonic()
    try:
        run(finish_programs.never_looks, how, tmp_path, runner={"grace": 1.0})
    except NodeError as error:
        assert error.node == 1
    assert 1.0 <= time.monotonic() - started < 40.0, "it starts in seconds on a busy machine"
    assert len(list(tmp_path.glob("stuck.*"))) == 1


def test_a_node_without_work_waits_and_does_not_end_the_run(run):
    assert run(finish_programs.has_no_work_here, 30) == [30, 0]


def test_a_node_without_work_ends_when_all_others_have_left(run):
    assert run(finish_programs.has_no_work_and_all_others_leave, 3) == [0, 1]
