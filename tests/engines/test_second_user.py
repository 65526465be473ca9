"""Another user of this machine, who tries all that can be tried while a run is going on.

The same code as benchmarks/faults/second_user.py, with a trial of each kind.
"""

import os

import pytest
from benchmarks.faults import second_user

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user"),
]


KINDS = [
    pytest.param(kind, marks=() if kind == "local" else pytest.mark.slow)
    for kind in second_user.KINDS
]


@pytest.mark.parametrize("kind", KINDS)
def test_another_user_gets_at_nothing_while_a_run_goes_on(kind):
    if "ray" in kind:
        pytest.importorskip("ray")
    got = second_user.trial(kind, 0, faulty=True)
    assert second_user.violations(got, wanted=None) == []
    assert got["tried"] > 100 and got["landed"]


def test_the_same_trial_without_another_user_finds_nothing():
    got = second_user.trial("serial", 0, faulty=False)
    assert second_user.violations(got, wanted=None) == []
    assert got["tried"] == 0
