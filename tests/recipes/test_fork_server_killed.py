"""The fork server of a training command is killed: it goes on, and a signal still saves."""

import json
import os
from signal import SIGKILL, SIGTERM

import pytest
from faulty import Started, run

SERVER = "muster.engines.local.forked"
MODES = [("ppo", 2), ("dqn", 3)]
LONG = {"env_steps": 20_000, "eval_every": 0, "checkpoint_every": 2000}


def killed(training):
    """Kill the fork server in mid-training, and prove that it and all nodes are gone."""
    training.wait(lambda: training.env_step() >= 4000, "training")
    before = set(training.below())
    server = training.helper(SERVER)
    os.kill(server, SIGKILL)
    tracker = training.helper("resource_tracker")
    training.wait(lambda: before - {tracker} <= before - set(training.below()), "nodes to die")
    return training.env_step()


@pytest.mark.parametrize(
    ("algo", "workers"), [MODES[0], pytest.param(*MODES[1], marks=pytest.mark.slow)]
)
def test_the_run_goes_on_and_ends_as_without(tmp_path, algo, workers):
    with Started(algo, tmp_path / "run", workers, **LONG) as training:
        killed(training)
        code, said = training.end()
    assert code == 0, said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["replacements"] == workers
    if algo == "ppo":
        run(algo, tmp_path / "serial", 0, **LONG)
        wanted = json.loads((tmp_path / "serial" / "result.json").read_text())
        assert result["policy_sha256"] == wanted["policy_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "workers"), MODES)
@pytest.mark.parametrize("later", [0, 1])
def test_a_signal_to_the_group_after_it_saves(tmp_path, algo, workers, later):
    with Started(algo, tmp_path / "run", workers, **{**LONG, "env_steps": 10**8}) as training:
        step = killed(training)
        if later:
            training.wait(lambda: training.env_step() > step, "training to go on")
        os.killpg(training.process.pid, SIGTERM)
        code, said = training.end()
        assert training.below() == []
    assert code == 143, said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    last = json.loads((tmp_path / "run" / "checkpoints" / "last.json").read_text())
    assert result["stopped_by"] == "signal"
    assert str(result["env_steps"]) in json.dumps(last)
