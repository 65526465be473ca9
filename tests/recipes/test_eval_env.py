"""Evaluations on another environment than the one that is trained on."""

import json

import pytest
import wrappers_of_tests as own

import muster
from muster.cli.main import main
from muster.errors import OptionError

SMALL = {"eval_episodes": 2, "eval_every": 0, "quiet": True, "stop_at": None, "hidden": (8,)}
PPO = {**SMALL, "env_steps": 512, "num_envs": 4, "rollout": 64, "minibatches": 1, "epochs": 1}
SHORT = {"eval_env_kwargs": {"max_episode_steps": 3}}


def train(run, algo="ppo", env="CartPole-v1", **options):
    given = {**(PPO if algo == "ppo" else SMALL), "workers": 0, **options}
    return muster.train(algo, env, run_dir=str(run), **given)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("ppo", {}),
        ("dqn", {"env_steps": 300, "learning_starts": 100}),
        ("impala", {"env_steps": 1_000}),
        ("a3c", {"env_steps": 500}),
        ("dqn", {"env_steps": 300, "learning_starts": 100, "workers": 3}),
        pytest.param("ppo", {"workers": 2}, marks=pytest.mark.slow),
        pytest.param("impala", {"env_steps": 1_000, "workers": 3}, marks=pytest.mark.slow),
        pytest.param("ppo", {"workers": 2, "engine": "ray"}, marks=pytest.mark.slow),
    ],
)
def test_every_program_evaluates_on_the_other_environment(tmp_path, algo, options):
    result = train(tmp_path / "run", algo, **{**SHORT, **options})
    assert result.eval_return_mean == 3.0  # an episode of evaluation has three steps
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("collect/length", 0) for line in lines) > 3


def test_it_changes_no_bit_of_the_policy_and_has_the_wrappers_of_the_run(tmp_path):
    plain = train(tmp_path / "plain")
    apart = train(tmp_path / "apart", eval_env="CartPole-v0")
    assert plain.policy_sha256 == apart.policy_sha256
    twice = train(tmp_path / "twice", wrapper=own.doubled, eval_env="CartPole-v0", **SHORT)
    assert twice.eval_return_mean == 6.0


def test_arguments_of_the_run_hold_unless_another_environment_is_named(tmp_path):
    both = {"env_kwargs": {"max_episode_steps": 4}}
    changed = train(tmp_path / "a", eval_env_kwargs={"sutton_barto_reward": False}, **both)
    assert changed.eval_return_mean == 4.0
    assert train(tmp_path / "b", eval_env="CartPole-v0", **both).eval_return_mean > 4.0


def test_a_resumed_run_keeps_it(tmp_path):
    train(tmp_path / "run", **SHORT)
    resumed = muster.resume(tmp_path / "run", env_steps=1_024)
    assert resumed.eval_return_mean == 3.0
    again = muster.resume(tmp_path / "run", env_steps=1_024)  # only completes it
    assert again.eval_return_mean == 3.0
    with pytest.raises(OptionError, match="eval_env='CartPole-v0' is not possible: the run in"):
        muster.resume(tmp_path / "run", env_steps=2_048, eval_env="CartPole-v0")


def test_other_spaces_are_refused_and_both_are_shown(tmp_path, capsys):
    words = ["train", "ppo", "CartPole-v1", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--eval-env", "Acrobot-v1"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "evaluations on 'Acrobot-v1' are not possible: its observations are Box" in said[0]
    assert "those of 'CartPole-v1' are Box" in said[1] and len(said) == 3
    assert main([*words, "--eval-env", "CartPole-v7"]) == 2
    assert "muster train ppo CartPole-v1 --eval-env CartPole-v1" in capsys.readouterr().err
    assert main([*words, "--eval-env-kwargs", "gravity"]) == 2
    assert "--eval-env-kwargs gravity=9.8" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_file_never_makes_code_of_an_evaluation_run(tmp_path):
    (tmp_path / "config.yaml").write_text("eval_env: 'antigravity:X-v0'\n")
    with pytest.raises(OptionError, match="the environment 'antigravity:X-v0' is code"):
        muster.train("ppo", "CartPole-v1", config=tmp_path / "config.yaml")
    train(tmp_path / "run", eval_env="CartPole-v0")
    text = (tmp_path / "run" / "config.yaml").read_text()
    bad = text.replace("eval_env: CartPole-v0", "eval_env: 'antigravity:X-v0'")
    assert bad != text
    (tmp_path / "run" / "config.yaml").write_text(bad)
    with pytest.raises(OptionError, match="an environment from code, 'antigravity:X-v0'"):
        muster.resume(tmp_path / "run", env_steps=1_024)
