"""Runs of several processes on a device that is not the CPU (`pretend`: no GPU was there)."""

import pretend
import pytest
from runs import COMMON, IN_STEP, REPLAY

import muster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:episodes of the evaluation")]


@pytest.fixture(autouse=True)
def found(monkeypatch, request):
    tests = request.config.rootpath / "tests"
    for folder in (tests, tests / "devices"):
        monkeypatch.syspath_prepend(str(folder))
    with pretend.devices():
        yield


def test_workers_in_step_on_a_device_train_the_policy_of_one_process(tmp_path):
    shas = set()
    for workers in (0, 2):
        told = {**COMMON, **IN_STEP, "workers": workers, "device": "pretend"}
        run_dir = tmp_path / str(workers)
        found = muster.train("ppo", "pretend_env:Pole-v0", run_dir=str(run_dir), **told)
        shas.add(found.policy_sha256)
        assert found.speed["device"] == "pretend"
    assert len(shas) == 1


def test_a_learner_on_a_device_has_actors_on_the_cpu(tmp_path):
    told = {**COMMON, **REPLAY, "workers": 3, "device": "pretend", "env_steps": 400}
    found = muster.train("dqn", "pretend_env:Pole-v0", run_dir=str(tmp_path / "run"), **told)
    assert found.train_iter > 0 and found.speed["device"] == "pretend"
