"""`muster doctor --address`: a real cluster on loopback, and others that are made up here."""

import subprocess
import sys

import pytest

from muster.cli.cluster_report import ClusterNode, say
from muster.engines.ray import versions

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)

MINE = {"muster": "0.1.0", "python": "3.11.7", "ray": "2.60.0"}
GIB = 2.0**30
ALL = {"CPU": 4.0, "GPU": 1.0, "memory": 8 * GIB, "object_store_memory": 2 * GIB}
FREE = {"CPU": 3.0, "memory": 6 * GIB, "object_store_memory": 2 * GIB}
GOOD = ClusterNode("10.0.0.1", ALL, FREE, {**MINE, "torch": "2.13.0"}, int(4 * GIB))


def doctor(*argv, env):
    return subprocess.run(
        [sys.executable, "-m", "muster.cli.main", "doctor", *argv],
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_doctor_shows_the_nodes_of_a_cluster_and_their_versions(ray_head):
    done = doctor("--address", ray_head.address, env=ray_head.env(ray_head.token))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"Ray cluster at {ray_head.address}, 1 node"
    assert "  token      required" in lines and "node 127.0.0.1" in lines
    assert "  CPUs       2 of 2 free" in lines and "  GPUs       none" in lines
    (versions,) = [line for line in lines if line.startswith("  versions")]
    assert all(name in versions for name in ("python 3", "ray 2", "torch 2", "muster 0"))
    assert lines[-2:] == ["what would fail", "  nothing that can be seen from here"]
    assert max(map(len, lines)) <= 80


def test_doctor_without_a_token_says_which_variable_to_set(ray_head):
    done = doctor("--address", ray_head.address, env=ray_head.env())
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 3 and "RAY_AUTH_TOKEN" in done.stderr


def test_doctor_speaks_of_the_address_as_it_is_typed(ray_head):
    done = doctor("--address", "ray://head:10001", env=ray_head.env())
    assert done.returncode == 2
    assert "try: muster doctor --address head:6379" in done.stderr


def test_doctor_looks_at_an_env_or_a_cluster(ray_head):
    done = doctor("CartPole-v1", "--address", ray_head.address, env=ray_head.env())
    assert done.returncode == 2 and "not at both" in done.stderr


def test_a_good_cluster_is_shown_with_what_is_free():
    lines, problems = say("10.0.0.1:6379", True, [GOOD], MINE)
    assert problems == []
    assert "  CPUs       3 of 4 free" in lines and "  GPUs       0 of 1 free" in lines
    assert "  memory     6 of 8 GiB free" in lines and "  store      2 of 2 GiB free" in lines


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (ClusterNode("b", ALL, FREE, {**GOOD.versions, "muster": None}), "node b has no muster"),
        (ClusterNode("b", ALL, FREE, {**GOOD.versions, "torch": None}), "node b has no torch"),
        (
            ClusterNode("b", ALL, FREE, {**GOOD.versions, "muster": "0.2.0"}),
            "node b has muster 0.2.0, and this machine has 0.1.0",
        ),
        (ClusterNode("b", ALL, FREE, {**GOOD.versions, "python": "3.12.1"}), "has python 3.12.1"),
        (ClusterNode("b", ALL, FREE, GOOD.versions, 2**26), "0.062 GiB of /dev/shm"),
        (ClusterNode("b", ALL, FREE, silent="no worker answered in 20 s"), "could not be asked"),
        (
            ClusterNode("b", died="health check\nfailed " + 30 * "again "),
            "node b died: health check",
        ),
        (ClusterNode("b", {}, {}, GOOD.versions), "no node has a CPU"),
    ],
)
def test_what_would_fail_is_listed_in_80_columns(node, problem):
    nodes = [node] if problem == "no node has a CPU" else [GOOD, node]
    lines, problems = say("10.0.0.1:6379", False, nodes, MINE)
    assert len(problems) == 1 and problem in problems[0]
    shown = lines[lines.index("what would fail") + 1 :]
    assert " ".join(problems[0].split()) == " ".join(" ".join(shown).split())
    assert max(map(len, lines)) <= 80
    assert not any("\n" in line for line in lines)


def test_a_node_without_muster_can_still_be_asked():
    from ray import cloudpickle

    code = """
import sys
sys.modules["muster"] = None
from ray import cloudpickle
found = cloudpickle.loads(sys.stdin.buffer.read())()
assert found["muster"] is None and found["ray"], found
"""
    sent = cloudpickle.dumps(versions.asker())
    subprocess.run([sys.executable, "-c", code], input=sent, check=True, timeout=300)
