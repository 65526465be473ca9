"""`--workers 4..6` on a Ray cluster: actors join with a machine, and leave with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.faults.ray_machines import wait
from benchmarks.machines import Machines

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
STEPS = 40_960
"""Some 100 s of environments that take their time, and longer on a busy machine."""
PROGRAMS = {
    "impala": ("actor", "--unroll", "16", "--max-lag", "8"),
    "apex": ("actor", "--learning-starts", "256"),
    "a3c": ("worker",),
}


class Going:
    """A run on a cluster that grows and shrinks."""

    def __init__(self, machines, place, algo):
        self.place, self.output = place, place.parent / "output"
        self.role, *options = PROGRAMS[algo]
        command = [sys.executable, "-m", "muster.cli.main", "train", algo, "CartPole-v1"]
        where = ("--engine", "ray", "--address", machines.address, "--workers", "4..6")
        slow = ("--wrapper", "slow_env:TakesTime", "--num-envs", "4")
        limit = ("--env-steps", str(STEPS), "--stop-at", "1e6")
        evaluated = ("--eval-every", "0", "--eval-episodes", "1")
        with self.output.open("w") as output:
            self.run = machines.start(
                [*command, *where, *slow, *limit, *evaluated, *options, "--run-dir", str(place)],
                cwd=ROOT / "tests" / "recipes",
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def lines(self):
        try:
            text = (self.place / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def here(self):
        """Return how many nodes act, and the steps so far, as the last line says."""
        named = [line for line in self.lines() if f"nodes/{self.role}" in line]
        return (named[-1][f"nodes/{self.role}"], named[-1]["env_step"]) if named else (0, 0)

    def come_to(self, nodes):
        wait(lambda: self.here()[0] == nodes, 240, f"{nodes} act", self.run)

    def get_on(self, steps=1_500):
        before = self.here()[1]
        wait(lambda: self.here()[1] >= before + steps, 240, "it went on", self.run)


@pytest.mark.parametrize("algo", list(PROGRAMS))
def test_actors_join_with_a_machine_and_leave_with_it(tmp_path, algo):
    """A learner, an evaluator and two actors have the first machine for themselves."""
    with Machines([4]) as machines:
        going = Going(machines, tmp_path / "run", algo)
        going.come_to(2)
        added = machines.add(cpus=2)
        going.come_to(4)
        going.get_on()
        machines.remove(added)
        going.come_to(2)
        going.get_on()
        assert going.run.wait(600) == 0, going.output.read_text()
    result = json.loads((going.place / "result.json").read_text())
    assert (result["workers"], result["workers_range"]) == (4, [4, 6])
    assert (result["stopped_by"], result["replacements"]) == ("steps", 0)
    told = going.output.read_text()
    assert told.count(f"({going.role}) joined; there are") == 2, told
    assert told.count(f"({going.role}) left: its Ray actor is gone") == 2, told
    lines = going.lines()
    for counter in ("env_step", "train_iter"):
        found = [line[counter] for line in lines if counter in line]
        assert found == sorted(found), f"{counter} went back"
    if algo == "impala":
        batch = 16 * 4  # one unroll of four environments
        assert result["env_steps"] == STEPS == batch * result["train_iter"], "each learnt once"
        assert max(line["lag/most"] for line in lines if "lag/most" in line) <= 8
    else:
        assert STEPS <= result["env_steps"] <= STEPS + 1_024
