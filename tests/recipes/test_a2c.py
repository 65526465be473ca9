"""A2C as a run: it learns, and the number of workers changes nothing."""

import pytest

import muster

SMALL = {
    "env_steps": 1_024,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 256,
    "quiet": True,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_it_learns_to_balance(tmp_path, seed):
    result = muster.train(
        "a2c", "CartPole-v1", run_dir=str(tmp_path / "run"), seed=seed, quiet=True
    )
    assert result.eval_return_mean >= 475 and result.stopped_by == "target"


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    "model", [None, *(pytest.param(n, marks=pytest.mark.slow) for n in ("lstm", "gru"))]
)
def test_any_number_of_workers_comes_to_the_same_policy(tmp_path, env, model):
    found = {
        muster.train(
            "a2c", env, run_dir=str(tmp_path / str(workers)), workers=workers, model=model, **SMALL
        ).policy_sha256
        for workers in (0, 2)
    }
    assert len(found) == 1


def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    whole = muster.train("a2c", "CartPole-v1", run_dir=str(tmp_path / "a"), workers=0, **SMALL)
    half = {**SMALL, "env_steps": 512}
    muster.train("a2c", "CartPole-v1", run_dir=str(tmp_path / "b"), workers=0, **half)
    resumed = muster.resume(tmp_path / "b", env_steps=1_024, quiet=True)
    assert resumed.policy_sha256 == whole.policy_sha256
