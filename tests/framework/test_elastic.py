"""A role that is a range: who may be asked for, and how a run goes on while nodes come and go."""

import os
from multiprocessing import Pipe

import pytest

from muster.engines.local.engine import LocalEngine
from muster.engines.member import Member
from muster.engines.orders import (
    AtRun,
    End,
    Finishing,
    Go,
    Gone,
    Listening,
    NodeJoined,
    Raised,
    Replaced,
    Returned,
)
from muster.engines.progress import ProgressPage
from muster.engines.supervisor import Supervisor
from muster.errors import OptionError
from muster.framework import Parallel, parallel

ROLES = {"learner": 1, "actor": (1, 3)}


def main():
    """Never called here."""


def launch_of(monkeypatch, engine, roles=ROLES, **options):
    """Return what an engine is told."""
    told = []
    from muster.engines.ray.engine import RayEngine

    for each in (LocalEngine, RayEngine):
        monkeypatch.setattr(each, "run", lambda self, launch: told.append(launch) or [])
    Parallel.runner(roles=roles, engine=engine, **options)(main)
    return told[0]


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ({"learner": 1, "actor": (3, 1)}, "the least and the most"),
        ({"learner": 1, "actor": (0, 1)}, "the least is 1 or more"),
        ({"learner": 1, "actor": (1,)}, "the least and the most"),
        ({"learner": 1, "actor": (1, 2.5)}, "the least and the most"),
        ({"actor": (1, 2)}, "node 0 has this role"),
        ({"learner": 1, "actor": (1, 2), "worker": (1, 2)}, "only one role"),
    ],
)
def test_a_range_that_cannot_be_is_refused(roles, why):
    with pytest.raises(OptionError) as refused:
        Parallel.runner(roles=roles, engine="ray")
    assert why in refused.value.args[1]


def test_on_a_cluster_the_nodes_beyond_the_least_are_late(monkeypatch):
    launch = launch_of(monkeypatch, "ray")
    assert launch.late == {2, 3}
    assert launch.places[0].elastic == {1, 2, 3}


@pytest.mark.parametrize(("cores", "size"), [(1, 2), (3, 3), (64, 4)])
def test_on_this_machine_a_range_is_as_many_as_there_are_cores(monkeypatch, cores, size):
    monkeypatch.setattr(parallel, "whole_cores", lambda: cores)
    launch = launch_of(monkeypatch, "local")
    assert (len(launch.places), launch.late, launch.places[0].elastic) == (size, set(), set())


class Puppet(Member):
    """A node that does what a test says."""

    lost = False

    def _begin(self):
        self.told, self.killed = [], False
        self.pipe, self._other = Pipe()
        self._sentinel, self._end = os.pipe()

    @property
    def sentinel(self):
        return self._sentinel

    @property
    def has_lost_place(self):
        return self.lost

    def tell(self, order):
        self.told.append(order)

    def kill(self):
        self.killed = True

    def join(self):
        pass

    def exit_status(self):
        return "its machine is gone"

    def _release(self):
        self._other.close()
        os.close(self._sentinel)
        os.close(self._end)


class Run:
    """A supervisor with its nodes, of which 2 and 3 are late."""

    def __init__(self, launch):
        self.page = ProgressPage.create(len(launch.places))
        self.nodes = [Puppet(place, launch, self.page) for place in launch.places]
        self.supervisor = Supervisor(launch, self.nodes, self.page)
        for node in self.nodes:
            self.supervisor._start(node)

    def says(self, node, *orders):
        for order in orders:
            self.supervisor._handle(self.nodes[node], order)

    def comes(self, node):
        self.says(node, Listening(), AtRun(0, (), frozenset()))

    def ends(self, node, lost=False):
        self.nodes[node].lost = lost
        self.supervisor._on_exit(self.nodes[node])

    def comes_back(self, node):
        self.supervisor._replace(self.nodes[node])
        self.comes(node)

    def heard(self, node, kind):
        return [order for order in self.nodes[node].told if isinstance(order, kind)]


@pytest.fixture
def run(monkeypatch):
    run = Run(launch_of(monkeypatch, "ray", on_failure="restart"))
    yield run
    for node in run.nodes:
        run.supervisor._end(node)
    run.supervisor._selector.close()
    run.page.close()


def test_a_program_begins_without_those_that_are_late_and_tells_of_them(run, capfd):
    run.comes(0)
    assert not run.heard(0, Go)
    run.comes(1)
    assert run.heard(0, Go) and run.heard(1, Go)
    assert run.heard(0, Gone) == [Gone(2, -1), Gone(3, -1)]
    run.comes(3)
    assert run.heard(3, Go) and run.heard(0, NodeJoined) == [NodeJoined(3)]
    assert "node 3 (actor) joined; there are 2 of at most 3 actor nodes" in capfd.readouterr().err


def test_who_is_lost_with_its_machine_leaves_and_may_come_back(run, capfd):
    run.comes(0)
    run.comes(1)
    run.ends(1, lost=True)
    assert run.supervisor._error is None and not run.nodes[1].ended
    assert run.heard(0, Gone)[-1] == Gone(1, 0) and not run.heard(0, Replaced)
    run.comes_back(1)
    assert run.nodes[1].place.incarnation == 1
    assert run.heard(0, NodeJoined) == [NodeJoined(1)] and run.heard(0, Replaced) == [Replaced(1)]
    told = capfd.readouterr().err.splitlines()
    assert told[0].endswith(
        "(actor) left: its machine is gone; there are 0 of at most 3 actor nodes"
    )
    assert told[1].endswith("(actor) joined; there are 1 of at most 3 actor nodes")


def test_a_process_that_is_killed_on_a_machine_that_is_there_is_replaced_as_ever(run):
    run.comes(0)
    run.comes(1)
    run.ends(1)
    assert run.nodes[1].restart_at is not None and not run.nodes[1].away
    assert [order.node for order in run.heard(0, Gone)] == [2, 3]
    run.comes_back(1)
    assert run.heard(0, Replaced) == [Replaced(1)] and not run.heard(0, NodeJoined)


def test_a_newcomer_that_cannot_begin_does_not_end_the_run(run, capfd):
    run.comes(0)
    run.comes(1)
    for _ in range(6):
        run.says(2, Listening(), Raised("ImportError: no module", "it comes from there", "..."))
        run.ends(2)
        assert run.supervisor._error is None
        if not run.nodes[2].ended:
            run.supervisor._replace(run.nodes[2])
    assert run.nodes[2].ended
    assert "node 2 (actor) does not join: it raised ImportError" in capfd.readouterr().err


def test_a_node_at_work_that_raises_ends_the_run(run):
    run.comes(0)
    run.comes(1)
    run.comes(2)
    run.says(2, Raised("ValueError: no", "it comes from there", "..."))
    assert run.supervisor._error is not None


def test_at_the_end_nobody_waits_for_those_that_are_away(run):
    run.comes(0)
    run.comes(1)
    run.ends(1, lost=True)  # it waits to be started again
    run.says(0, Finishing("node 0"))
    assert run.nodes[1].ended and run.nodes[2].killed and run.nodes[3].killed
    run.ends(2)
    assert run.nodes[2].ended and run.supervisor._error is None


def test_a_newcomer_that_is_not_linked_yet_is_told_that_the_run_ends(run):
    run.comes(0)
    run.comes(1)
    run.says(2, Listening())  # the learner has not heard of it
    run.says(0, Finishing("node 0"))
    assert len(run.heard(2, End)) == 1
    assert not run.heard(0, End), "who finishes knows it"


def test_a_learner_that_is_replaced_is_told_that_a_node_that_was_given_up_is_away(run):
    run.comes(0)
    run.comes(1)
    for _ in range(6):
        run.says(2, Listening(), Raised("ImportError: no module", "it comes from there", "..."))
        run.ends(2)
        if not run.nodes[2].ended:
            run.supervisor._replace(run.nodes[2])
    run.ends(0)
    run.comes_back(0)
    away, ended = (order for order in run.heard(0, Gone) if order.node == 2)
    assert away.incarnation is not None and ended.incarnation is None


def test_those_that_wait_for_room_do_not_keep_a_run_from_ending(run):
    run.comes(0)
    run.comes(1)
    for node in (0, 1):  # each for itself: nobody says that all finish
        run.says(node, Returned(None))
        run.ends(node)
    assert run.nodes[2].killed and run.nodes[3].killed
    for node in (2, 3):
        run.ends(node)
        assert run.nodes[node].ended


def test_machines_that_are_lost_again_and_again_are_no_failures_of_a_node(run):
    run.comes(0)
    run.comes(1)
    for _ in range(20):
        run.ends(1, lost=True)
        run.comes_back(1)
    run.ends(1)
    assert run.supervisor._error is None and run.nodes[1].restart_at is not None
