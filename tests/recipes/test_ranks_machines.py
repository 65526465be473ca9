"""Ranks on two machines: network namespaces with addresses of their own."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.machines import Machines
from rank_processes import TOKEN, wait_until

import muster

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SMALL = {"env_steps": 8192, "eval_every": 0, "eval_episodes": 1, "quiet": True, "num_envs": 8}
OPTIONS = ("--eval-every", "0", "--eval-episodes", "1", "--quiet", "--num-envs", "8")


@pytest.fixture(scope="module")
def machines():
    with Machines([1, 1], bare=True) as machines:
        if not machines.are_real:
            pytest.skip("network namespaces take root and iproute2")
        yield machines


def start(machines, place, argv, port, run):
    """Start one rank on each machine."""
    place.mkdir(exist_ok=True)
    address = f"{machines.machines[0].address}:{port}"
    started = []
    for rank, machine in machines.machines.items():
        links = subprocess.run(
            machine.within(["ip", "-o", "-4", "addr", "show", "to", machine.address]),
            capture_output=True,
            text=True,
            check=True,
        )
        interface = links.stdout.split()[1]
        command = ["env", f"MUSTER_TOKEN={TOKEN}", f"GLOO_SOCKET_IFNAME={interface}"]
        command += [sys.executable, "-m", "muster.cli.main", *argv]
        command += ["--join", address, "--rank", str(rank), "--world", "2", "--run-dir", str(run)]
        with (place / f"rank{rank}").open("w") as output:
            started.append(machines.start(command, rank, cwd=ROOT, stdout=output, stderr=output))
    return started


@pytest.mark.parametrize("collective", ["sockets", "gloo"])
def test_two_machines_come_to_the_policy_of_one_process(machines, tmp_path, collective):
    one = muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "one"), workers=0, **SMALL)
    argv = ("train", "ppo", "CartPole-v1", "--env-steps", "8192", *OPTIONS)
    argv += ("--collective", collective)
    run = tmp_path / "two"
    both = start(machines, tmp_path / "said", argv, 29501 + len(collective), run)
    codes = [rank.wait(120) for rank in both]
    said = [(tmp_path / "said" / f"rank{rank}").read_text() for rank in (0, 1)]
    assert codes == [0, 0], said
    assert json.loads((run / "result.json").read_text())["policy_sha256"] == one.policy_sha256


def test_a_machine_whose_network_is_cut_is_noticed(tmp_path):
    with Machines([1, 1], bare=True) as machines:
        if not machines.are_real:
            pytest.skip("network namespaces take root and iproute2")
        run = tmp_path / "run"
        argv = ("train", "ppo", "CartPole-v1", "--env-steps", "10000000", *OPTIONS)
        argv += ("--checkpoint-every", "2048")
        first, _ = start(machines, tmp_path / "said", argv, 29600, run)
        wait_until(lambda: (run / "checkpoints" / "last.json").exists(), 100)
        cut = time.monotonic()
        machines.remove(1, unplug=True)
        assert first.wait(60) == 1
        assert time.monotonic() - cut < 30
        said = (tmp_path / "said" / "rank0").read_text()
        assert "rank 1 is lost" in said and "muster resume" in said
