"""PPO with a GRU as a run: workers and a resume change nothing, and the saved policy remembers."""

import numpy as np
import pytest

import muster

SMALL = {
    "env_steps": 1_024,
    "num_envs": 8,
    "rollout": 32,
    "model": "gru",
    "hidden": (24, 20),
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 256,
    "quiet": True,
}


def train(run, **options):
    return muster.train("ppo", "CartPole-v1", run_dir=str(run), **{**SMALL, **options})


def test_any_number_of_workers_comes_to_the_same_policy(tmp_path):
    found = {train(tmp_path / str(n), workers=n).policy_sha256 for n in (0, 1, 2, 4)}
    assert len(found) == 1


def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    whole = train(tmp_path / "a", workers=0)
    train(tmp_path / "b", workers=2, env_steps=512)
    resumed = muster.resume(tmp_path / "b", env_steps=1_024, workers=0, quiet=True)
    assert resumed.policy_sha256 == whole.policy_sha256


def test_a_saved_policy_is_loaded_with_its_memory(tmp_path):
    result = train(tmp_path / "run", workers=0)
    policy = muster.load_policy(tmp_path / "run")
    obs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    chosen = []
    for each in (policy, result.policy):
        each.reset()
        chosen.append([int(each.act(row)) for row in obs])
    assert chosen[0] == chosen[1]
    assert policy.remembers and policy.model.state_width == 20


def test_a_q_learner_of_single_steps_refuses_it(tmp_path):
    options = {"model": "gru", "dueling": False, "run_dir": str(tmp_path / "run"), "quiet": True}
    with pytest.raises(muster.MusterError, match="the model 'gru' is not a Q-network"):
        muster.train("apex", "CartPole-v1", **options)
