"""Training on a Ray cluster of two machines, each with an address of its own where that can be."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.faults.ray_machines import lines, nodes_on, wait
from benchmarks.machines import Machines

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
SHORT = ("--env-steps", "8192", "--eval-every", "0", "--eval-episodes", "2", "--quiet")


@pytest.fixture(scope="module")
def machines():
    with Machines([4, 4]) as machines:
        yield machines


@pytest.fixture(scope="module")
def two_of_one_cpu():
    """Two workers do not fit on one of them."""
    with Machines([1, 1]) as machines:
        yield machines


def train(algo, place, *options, machines=None):
    """Run `muster train`, on a cluster or here, and return its result."""
    command = [sys.executable, "-m", "muster.cli.main", "train", algo, "CartPole-v1", *options]
    command += ["--run-dir", str(place)]
    if machines is None:
        subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    else:
        command += ["--engine", "ray", "--address", machines.address]
        with (Path(place).parent / "output").open("w+") as output:
            run = machines.start(command, cwd=ROOT, stdout=output, stderr=output)
            assert run.wait(300) == 0, (output.seek(0), output.read())[1]
    return json.loads((place / "result.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0"])
def test_ppo_on_two_machines_is_ppo_in_one_process_to_the_bit(two_of_one_cpu, tmp_path, seed):
    here = train("ppo", tmp_path / "here", "--seed", seed, "--workers", "0", *SHORT)
    there = train(
        "ppo",
        tmp_path / "there",
        *("--seed", seed, "--workers", "2"),
        *SHORT,
        machines=two_of_one_cpu,
    )
    assert there["policy_sha256"] == here["policy_sha256"]
    assert there["env_steps"] == here["env_steps"] == 8192
    logs = sorted(path.name for path in (tmp_path / "there" / "logs").iterdir())
    assert logs == ["node.0.log", "node.1.log"], "there were not two workers"


@pytest.mark.slow
def test_ppo_on_two_machines_learns_to_balance(two_of_one_cpu, tmp_path):
    result = train("ppo", tmp_path / "run", "--workers", "2", "--quiet", machines=two_of_one_cpu)
    assert result["stopped_by"] == "target" and result["eval_return_mean"] >= 475


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2])
def test_dqn_on_two_machines_learns_to_balance(machines, tmp_path, shards):
    """Six or seven nodes on two machines of four CPUs: some are on the second one."""
    options = ("--workers", str(5 + shards), "--replay-shards", str(shards), "--quiet")
    result = train("dqn", tmp_path / "run", *options, machines=machines)
    assert result["stopped_by"] == "target" and result["eval_return_mean"] >= 475


LONG = ("--env-steps", "122880", *SHORT[2:], "--checkpoint-every", "0")


class Going:
    """A run on a cluster that goes on while things happen to it."""

    def __init__(self, machines, place):
        command = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1"]
        where = ("--engine", "ray", "--address", machines.address, "--workers", "2")
        self.machines, self.place = machines, place
        self.output = place.parent / "output"
        with self.output.open("w") as output:
            self.run = machines.start(
                [*command, *LONG, *where, "--run-dir", str(place)],
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    def get_on(self, by=2):
        """Wait until it has written some more lines of metrics."""
        goal = lines(self.place) + by
        wait(lambda: lines(self.place) >= goal, 120, "it went on", self.run)

    def nodes(self):
        return sorted(
            pid for number in self.machines.machines for pid in nodes_on(self.machines, number)
        )

    def result(self):
        assert self.run.wait(300) == 0, self.output.read_text()
        return json.loads((self.place / "result.json").read_text())


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The weights of the same run in one process."""
    place = tmp_path_factory.mktemp("serial")
    return train("ppo", place / "run", "--workers", "0", *LONG)["policy_sha256"]


@pytest.mark.slow
def test_keepers_killed_one_after_the_other_change_nothing(machines, tmp_path, wanted):
    """Both workers are on one machine, so its memory is what the other node actor has."""
    going = Going(machines, tmp_path / "run")
    going.get_on()
    for which in (0, 1):
        before = going.nodes()
        node_actor = parent_of(before[which])
        os.kill(node_actor, signal.SIGKILL)
        wait(lambda b=before: set(going.nodes()) - set(b), 60, "a node came back", going.run)
        assert not Path(f"/proc/{node_actor}/cmdline").exists() or parent_of(node_actor) == 1
        going.get_on()
    result = going.result()
    assert (result["policy_sha256"], result["env_steps"]) == (wanted, 122_880)


@pytest.mark.slow
def test_machines_lost_one_after_the_other_change_nothing(tmp_path, wanted):
    """Each worker is moved to another machine once, from what the other one knows."""
    with Machines([0, 1, 1]) as machines:
        going = Going(machines, tmp_path / "run")
        going.get_on()
        for _ in range(2):
            lost = min(number for number in machines.machines if nodes_on(machines, number))
            machines.remove(lost)
            machines.add(1)
            going.get_on()
        result = going.result()
    assert (result["policy_sha256"], result["env_steps"]) == (wanted, 122_880)
