"""Studies that really train, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import muster

SMALL = {"env_steps": 4_096, "checkpoint_every": 1_024, "eval_every": 0, "eval_episodes": 5}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twelve_trials_killed_in_the_middle_and_resumed_give_the_same_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = {"lr": [0.01, 0.003, 0.001], "gamma": [0.9, 0.99], "epochs": [2, 4]}
    whole = muster.tune("ppo", "CartPole-v1", grid=grid, confirm=2, out="whole", **SMALL)
    words = ["--grid", "lr=0.01,0.003,0.001", "gamma=0.9,0.99", "epochs=2,4", "--confirm", "2"]
    for name, value in SMALL.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    study = subprocess.Popen(
        [sys.executable, "-m", "muster", "tune", "ppo", "CartPole-v1", *words, "--out", "s"]
    )
    while sum(trial["status"] == "finished" for trial in _trials("s")) < 5:
        assert study.poll() is None
        time.sleep(0.05)
    study.kill()
    assert study.wait() == -signal.SIGKILL
    written = {
        trial["number"]: os.stat(f"s/trials/{trial['number']:03}/result.json").st_mtime_ns
        for trial in _trials("s")
        if trial["status"] == "finished"
    }
    rest = muster.tune(resume="s")
    assert len(rest.trials) == 12 and rest.table() == whole.table()
    assert {
        number: os.stat(f"s/trials/{number:03}/result.json").st_mtime_ns for number in written
    } == written


def _trials(study):
    try:
        return json.loads(Path(study, "study.json").read_text())["trials"]
    except FileNotFoundError:
        return []
