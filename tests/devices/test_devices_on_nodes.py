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
        # By its number: each worker would take the next one, and only this one has gradients.
        told = {**COMMON, **IN_STEP, "workers": workers, "device": "pretend:0"}
        run_dir = tmp_path / str(workers)
        found = muster.train("ppo", "pretend_env:Pole-v0", run_dir=str(run_dir), **told)
        shas.add(found.policy_sha256)
        assert found.speed["device"] == "pretend:0"
    assert len(shas) == 1


def test_two_learners_on_a_device_train_the_policy_of_one(tmp_path):
    shas = set()
    for learners in (1, 2):
        told = {**COMMON, **REPLAY, "learners": learners, "device": "pretend:0", "env_steps": 200}
        run_dir = tmp_path / str(learners)
        found = muster.train("dqn", "pretend_env:Pole-v0", run_dir=str(run_dir), **told)
        assert found.train_iter > 0 and found.speed["device"] == "pretend:0"
        shas.add(found.policy_sha256)
    assert len(shas) == 1


def test_a_learner_on_a_device_has_actors_on_the_cpu(tmp_path):
    told = {**COMMON, **REPLAY, "workers": 3, "device": "pretend", "env_steps": 400}
    found = muster.train("dqn", "pretend_env:Pole-v0", run_dir=str(tmp_path / "run"), **told)
    assert found.train_iter > 0 and found.speed["device"] == "pretend"
