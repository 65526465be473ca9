"""An env that crashes or hangs at a fixed place is given up after a few lives, and named."""

import re

import pytest
from faulty import Fault, run

THREE = r"3 times in a row at the same place: \d+ steps of work after its start"


def check(tmp_path, algo, workers, fault, how, deaths):
    died = tmp_path / "died"
    died.mkdir()
    fault = Fault(*fault, place=str(died))
    done = run(algo, tmp_path / "run", workers, fault)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 3, done.stderr
    assert re.search(rf"node \d(?: \(\w+\))? {how[0]}", lines[0]), lines[0]
    assert re.fullmatch(rf"  why: {how[1]}, {THREE}", lines[1]), lines[1]
    log = lines[2].removeprefix("  try: see ")
    assert len(list(died.iterdir())) == deaths
    with open(log) as file:
        return file.read()


SEGFAULT = ("died 3 times", "it was ended by SIGSEGV")


def test_a_worker_that_crashes_in_one_episode_is_given_up_after_three_lives(tmp_path):
    log = check(tmp_path, "ppo", 1, ("episode", 7, "segfault"), SEGFAULT, 3)
    assert log.count("Fatal Python error: Segmentation fault") == 3
    assert "faulty.py" in log and "in step" in log


@pytest.mark.slow
def test_so_is_an_actor_that_crashes_at_one_step(tmp_path):
    log = check(tmp_path, "dqn", 3, ("step", 40, "segfault", "actor"), SEGFAULT, 3)
    assert log.count("Fatal Python error: Segmentation fault") == 3
