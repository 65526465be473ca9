"""A `main` that was typed in, as in a notebook, is in no file: it travels by value."""

import pytest

PROGRAM = """
from muster import Parallel, Task

OFFSET = 10


class Job:
    def __init__(self, number):
        self.number = number


def helper(number):
    return OFFSET + number


def main(job, more=0):
    with Task() as task:
        return helper(job.number) + more + task.router.node_id


print(Parallel.runner(2)(main, Job(5), more=100))
"""


@pytest.mark.timeout(120)
def test_it_runs_on_nodes_with_what_it_uses(warm_python, tmp_path):
    done = warm_python.run(PROGRAM, cwd=tmp_path, warnings=["error"])
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[115, 116]\n")


@pytest.mark.timeout(120)
def test_what_cannot_travel_is_named(warm_python, tmp_path):
    code = PROGRAM.replace("Job(5)", "open('/dev/null')")
    done = warm_python.run(code, cwd=tmp_path, warnings=["ignore"])
    assert done.returncode == 1 and "cannot be sent to a new process" in done.stderr
