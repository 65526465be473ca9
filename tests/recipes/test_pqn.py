"""PQN as a run: it learns, and neither workers nor a resume change what."""

import json

import pytest

import muster
from muster.cli.main import main

SLOW = pytest.mark.slow
SMALL = {
    "env_steps": 2_048,
    "num_envs": 8,
    "rollout": 32,
    "minibatches": 2,
    "epochs": 2,
    "hidden": (32, 32),
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 256,
    "quiet": True,
}


def train(run, env="CartPole-v1", **options):
    return muster.train("pqn", env, run_dir=str(run), **{**SMALL, **options})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in range(1, 5))])
def test_it_learns_to_balance(tmp_path, seed):
    result = muster.train(
        "pqn", "CartPole-v1", run_dir=str(tmp_path / "run"), seed=seed, workers=0, quiet=True
    )
    assert result.eval_return_mean >= 475 and result.stopped_by == "target"


@pytest.mark.parametrize("model", [None, "lstm"])
@pytest.mark.parametrize("workers", [2, *(pytest.param(n, marks=SLOW) for n in (1, 4))])
def test_any_number_of_workers_comes_to_the_same_policy(tmp_path, model, workers):
    found = {
        train(tmp_path / str(n), workers=n, model=model, env_steps=1_024).policy_sha256
        for n in (0, workers)
    }
    assert len(found) == 1


@SLOW
@pytest.mark.parametrize("model", [None, "lstm"])
def test_a_ray_cluster_comes_to_the_same_policy(tmp_path, model):
    here = train(tmp_path / "here", workers=0, model=model)
    there = train(tmp_path / "there", workers=2, model=model, engine="ray")
    assert here.policy_sha256 == there.policy_sha256


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("options", [{}, {"model": "lstm"}, {"model": "gru"}, {"lag": 1}], ids=str)
def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path, workers, options):
    whole = train(tmp_path / "a", workers=0, env_steps=1_024, **options)
    train(tmp_path / "b", workers=workers, env_steps=512, **options)
    resumed = muster.resume(tmp_path / "b", env_steps=1_024, quiet=True)
    assert resumed.policy_sha256 == whole.policy_sha256


def test_exploration_decays_with_the_steps_and_is_in_the_metrics(tmp_path):
    train(tmp_path / "run", workers=0, eps_decay=1_024.0, eps_end=0.1)
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    seen = {line["env_step"]: line["train/epsilon"] for line in lines if "train/epsilon" in line}
    assert seen[256] == pytest.approx(1.0) and seen[2_048] == pytest.approx(0.1)


def test_another_layer_norm_is_another_run(tmp_path):
    train(tmp_path / "run", workers=0, env_steps=256)
    with pytest.raises(muster.OptionError, match="layer_norm=False is not possible"):
        muster.resume(tmp_path / "run", layer_norm=False)


def test_actions_that_it_cannot_choose_from_are_refused_on_three_lines(capsys):
    assert main(["train", "pqn", "Pendulum-v1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "muster: PQN needs Discrete actions; got Box(-2.0, 2.0, (1,), float32)",
        "  why: it compares the values of all actions, so there must be finitely many",
        "  try: muster train ppo Pendulum-v1",
    ]
