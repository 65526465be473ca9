"""PPO with compiled convolutions as a run: workers and a resume change nothing."""

from pathlib import Path

import pytest

import muster

SMALL = {
    "env_steps": 512,
    "num_envs": 8,
    "rollout": 16,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 128,
    "quiet": True,
}


@pytest.fixture(autouse=True)
def found_by_nodes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def train(run, **options):
    return muster.train("ppo", "golden_env:Halves-v0", run_dir=str(run), **{**SMALL, **options})


@pytest.mark.parametrize(
    "model", ["nature_cnn", pytest.param("impala_cnn", marks=pytest.mark.slow)]
)
def test_any_number_of_workers_comes_to_the_same_policy(tmp_path, model):
    found = {train(tmp_path / str(n), workers=n, model=model).policy_sha256 for n in (0, 1, 2, 4)}
    assert len(found) == 1


def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    whole = train(tmp_path / "a", workers=0)
    train(tmp_path / "b", workers=2, env_steps=256)
    more = {"env_steps": 512, "workers": 0, "quiet": True, "env": "golden_env:Halves-v0"}
    resumed = muster.resume(tmp_path / "b", **more)
    assert resumed.policy_sha256 == whole.policy_sha256
