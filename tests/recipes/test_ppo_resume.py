"""What a resumed run of PPO must have in common with itself, and what it keeps."""

import json

import numpy as np
import pytest

import muster
from muster.errors import MusterError, OptionError

SMALL = {
    "env_steps": 256,
    "rollout": 8,
    "num_envs": 4,
    "minibatches": 2,
    "epochs": 1,
    "hidden": (8,),
    "eval_every": 0,
    "eval_episodes": 1,
    "stop_at": None,
    "workers": 0,
    "quiet": True,
}


@pytest.fixture
def run(tmp_path):
    place = tmp_path / "run"
    muster.train("ppo", "CartPole-v1", run_dir=str(place), **SMALL)
    return place


def resume(place, **changed):
    options = {**SMALL, "env_steps": 512, **changed}
    return muster.train("ppo", "CartPole-v1", run_dir=str(place), resume=True, **options)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"num_envs": 8}, "has num_envs=4"),
        ({"rollout": 16}, "has rollout=8"),
        ({"lag": 1}, "has lag=0"),
        ({"hidden": (16,)}, r"has hidden=\(8,\)"),
        ({"seed": 1}, "has seed=0"),
        ({"slots": 2}, "has slots=4"),
    ],
    ids=["envs", "rollout", "lag", "network", "seed", "slots"],
)
def test_another_cut_or_network_is_refused_and_changes_nothing(run, changed, what, workers):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(MusterError, match=what) as refused:
        resume(run, workers=workers, **changed)
    assert not refused.value.run_failed, "it is bad input, not a run that failed"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert resume(run).env_steps == 512


def test_a_run_with_a_lag_goes_on_with_a_lag_only(tmp_path):
    place = tmp_path / "run"
    muster.train("ppo", "CartPole-v1", run_dir=str(place), lag=1, **SMALL)
    with pytest.raises(OptionError, match="has lag=1"):
        resume(place, lag=0)
    whole = muster.train(
        "ppo", "CartPole-v1", run_dir=str(tmp_path / "whole"), lag=1, **{**SMALL, "env_steps": 512}
    )
    assert resume(place, lag=1).policy_sha256 == whole.policy_sha256


def test_a_result_of_before_is_gone_while_a_run_goes_on(run, monkeypatch):
    seen = []
    before = json.loads((run / "result.json").read_text())
    from muster.recipes import in_step

    def main(job, stop=None):
        seen.append((run / "result.json").exists())
        raise MusterError("it ends", "here", "again")

    monkeypatch.setattr(in_step, "main", main)
    with pytest.raises(MusterError, match="it ends"):
        resume(run)
    assert seen == [False] and before["env_steps"] == 256


def test_the_policy_of_a_result_is_the_last_one_whoever_trained_it(tmp_path):
    results = [
        muster.train(
            "ppo",
            "CartPole-v1",
            run_dir=str(tmp_path / str(workers)),
            **{**SMALL, "workers": workers},
        )
        for workers in (0, 2)
    ]
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    assert results[0].policy_sha256 == results[1].policy_sha256
    assert (results[0].policy.act(obs) == results[1].policy.act(obs)).all()


def test_what_workers_share_has_to_fit_into_memory(tmp_path):
    options = {**SMALL, "num_envs": 4096, "slots": 4096, "minibatches": 1, "hidden": (1024, 1024)}
    with pytest.raises(OptionError, match="do not fit into memory"):
        muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()
