"""Calls that Ray loses while it places the nodes of a run: it is asked again, and the run begins.

Ray loses each call on purpose, once, in the head of a cluster that the run starts for itself.
"""

import json
import os
import subprocess
import sys

import pytest

from muster.errors import OptionError

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)

PROGRAM = """
import os

import ray

from muster import Parallel, Task
from muster.engines.ray import placement

clusters, groups = [], []

def start_cluster(*args, start=ray.init, **options):
    if clusters:  # only the first one loses calls
        os.environ.pop("RAY_testing_rpc_failure", None)
    clusters.append(start(*args, **options))
    return clusters[-1]

def request_group(*args, request=placement.placement_group, **options):
    groups.append(request(*args, **options))
    return groups[-1]

def main():
    with Task() as task:
        task.use(lambda ctx: None)
        return task.run(max_step=3, end="own").total_step

if __name__ == "__main__":
    if "KEPT" in os.environ:  # a Ray that cannot be told to release
        placement.release = lambda groups, bundles: None
    ray.init, placement.placement_group = start_cluster, request_group
    print(Parallel.runner(2, engine="ray")(main), len(clusters), len(groups))
"""
SLOW = pytest.mark.slow
COMMIT, PREPARE = "CommitBundleResources", "PrepareBundleResources"


def run(folder, call, kind, **variables):
    """Run the program while one call is lost; return clusters started and groups requested."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    chances = {f"{each}_failure_prob": 0 for each in ("req", "resp")}
    lost = {"num_failures": 1, **chances, f"{kind}_failure_prob": 100}
    config = {f"NodeManagerService.grpc_client.{call}": lost} if call else {}
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ
        | variables
        | ({"RAY_testing_rpc_failure": json.dumps(config)} if config else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    values, _, counts = done.stdout.strip().splitlines()[-1].partition("] ")
    assert values == "[2, 2"
    clusters, groups = map(int, counts.split())
    return clusters, groups


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (COMMIT, "req"),
        pytest.param(COMMIT, "resp", marks=SLOW),
        pytest.param(COMMIT, "in_flight", marks=SLOW),
        pytest.param(PREPARE, "req", marks=SLOW),
        pytest.param(PREPARE, "resp", marks=SLOW),
        pytest.param(PREPARE, "in_flight", marks=SLOW),
    ],
)
def test_a_run_whose_placement_is_lost_asks_for_it_again(tmp_path, call, kind):
    clusters, groups = run(tmp_path, call, kind)
    # One call is lost, so one group is requested again; a busy machine may need another cluster.
    assert groups == clusters + 1, "the fault did not land, or Ray was asked too often"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resp", "in_flight"])
def test_a_cluster_of_its_own_that_cannot_place_a_run_any_more_is_started_anew(tmp_path, kind):
    clusters, groups = run(tmp_path, PREPARE, kind, KEPT="1")
    assert clusters == 2 and groups > 2


@pytest.mark.parametrize(
    ("asked", "most", "expected"),
    [(None, 300, 35), ("600", 300, 300), ("10", 300, 35), (None, 9, 9)],
)
def test_a_joined_cluster_that_places_nothing_is_given_up_within_a_minute(
    monkeypatch, asked, most, expected
):
    from muster.engines.ray import placement

    now = [0.0]

    def wait_in_vain(group, until):
        now[0] = until
        return False

    monkeypatch.setattr(placement.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(placement, "_is_placed", wait_in_vain)
    monkeypatch.setattr(placement, "placement_group", lambda *args, **options: object())
    for name in ("remove_placement_group", "release", "_refresh_resources"):
        monkeypatch.setattr(placement, name, lambda *args: None)
    if asked is not None:
        monkeypatch.setenv("MUSTER_RAY_WAIT", asked)
    with pytest.raises(OptionError, match="no room for 2 nodes"):
        placement.reserve([{"CPU": 1.0}] * 2, most, is_own=False)
    assert now[0] == expected


@pytest.mark.slow
def test_a_run_without_lost_calls_asks_once(tmp_path):
    assert run(tmp_path, None, "req") == (1, 1)
