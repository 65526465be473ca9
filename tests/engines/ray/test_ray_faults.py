"""What can happen to a Ray cluster under a run, on real machines: the same bits, or three lines.

The same code as benchmarks/faults/ray_faults.py, with a trial of each kind.
"""

import os

import pytest
from benchmarks.faults import ray_calls, ray_clusters, ray_faults

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can have several machines"),
]


@pytest.fixture(autouse=True)
def no_cluster_is_kept():
    yield
    ray_clusters.close_all()


@pytest.mark.parametrize("kind", ray_faults.KINDS)
def test_a_fault_of_ray_changes_no_bit_or_ends_the_run_in_three_lines(kind):
    assert ray_faults.KINDS[kind](0, True)["landed"] == 1


def test_resources_that_a_joined_cluster_holds_for_nobody_are_released_and_the_run_goes_on():
    lost = ray_calls.STARTING.index((ray_calls.PREPARE, "resp"))
    assert ray_calls.at_start(lost, True)["went_on"] == 1


@pytest.mark.parametrize("kind", ["K4-gcs", "K7-all"])
def test_the_same_trial_without_a_fault_goes_on(kind):
    assert ray_faults.KINDS[kind](0, False)["went_on"] == 1
