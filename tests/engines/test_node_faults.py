"""The faults of the catalogue that matter most, on a real driver with real nodes.

The same code as benchmarks/faults/node_faults.py, with a trial or two of each.
"""

import pytest
from benchmarks.faults import node_faults, node_sockets

pytestmark = pytest.mark.timeout(600)

TRIALS = {
    "A1": 1,
    "A7": 1,
    "A9": 1,
    "A10": 2,
    "B1": 1,
    "B4": 1,
    "F2": 1,
    "G1-burst": 2,
    "G2": 1,
    "G9": 1,
}


@pytest.mark.parametrize("kind", TRIALS)
def test_a_fault_is_survived_as_promised_and_nothing_is_left(kind):
    for seed in range(TRIALS[kind]):
        assert node_faults.KINDS[kind](seed, True)["landed"] == 1


def test_the_same_trial_without_a_fault_finds_nothing():
    got = node_faults.KINDS["A1"](0, False)
    assert got["items"] > 0 and got["landed"] == 0


def test_two_thousand_strangers_at_the_listeners_change_nothing(monkeypatch):
    monkeypatch.setattr(node_sockets, "INPUTS", 2000)
    assert node_sockets.fuzz_listeners(0, True)["landed"] > 1900


def test_two_thousand_bad_frames_are_refused(monkeypatch):
    monkeypatch.setattr(node_sockets, "INPUTS", 2000)
    assert node_sockets.fuzz_frames(0, True)["refused"] > 1000
