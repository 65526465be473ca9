"""A `main` that was typed in, as in a notebook, is in no file: it travels by value."""

import sys
import types

import pytest

from muster import OptionError, Parallel

CELL = """
import threading

from muster import Task

OFFSET = 10
LOCK = threading.Lock()


class Job:
    def __init__(self, number):
        self.number = number


def helper(number):
    return OFFSET + number


def main(job, more=0):
    with Task() as task:
        return helper(job.number) + more + task.router.node_id


def locked(job):
    return LOCK
"""


@pytest.fixture
def cell(monkeypatch):
    """Return what a cell has defined in the main module of a notebook."""
    module = types.ModuleType("__main__")
    exec(CELL, module.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


@pytest.mark.timeout(120)
def test_it_runs_on_nodes_with_what_it_uses(cell):
    assert Parallel.runner(2)(cell.main, cell.Job(5), more=100) == [115, 116]


def test_what_cannot_travel_is_refused(cell):
    with pytest.raises(OptionError, match="'locked' or an argument of it cannot be sent"):
        Parallel.runner(2)(cell.locked, cell.Job(5))
