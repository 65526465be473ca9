"""Environments that users bend: wrappers and arguments are a part of the run, wherever it plays."""

import json
import os
import subprocess
import sys

import pytest
import wrappers_of_tests as own

import muster
from muster.cli.main import main
from muster.envs import make_envs
from muster.envs.setup import EnvSetup
from muster.errors import OptionError
from muster.recipes.env_options import WRAPPERS, parse_env_kwargs, texts_of_kwargs

SMALL = {"eval_every": 0, "eval_episodes": 1, "quiet": True, "stop_at": None, "workers": 0,
         "hidden": (8,)}  # fmt: skip
PPO = {**SMALL, "env_steps": 512, "num_envs": 4, "rollout": 64, "minibatches": 1, "epochs": 1}


@pytest.fixture(autouse=True)
def no_wrappers(monkeypatch):
    """Begin as a new process does: it knows no wrapper."""
    monkeypatch.setattr(WRAPPERS, "_known", {})


def train(run, env="CartPole-v1", **options):
    return muster.train("ppo", env, run_dir=str(run), **{**PPO, **options})


def test_wrappers_are_applied_in_their_order_and_arguments_reach_the_environment(tmp_path):
    setup = EnvSetup(
        "CartPole-v1", {"max_episode_steps": 7}, (("half", own.Halved), ("two", own.doubled))
    )
    with make_envs(setup) as envs, make_envs("CartPole-v1") as plain:
        obs = envs.reset()
        assert obs.tolist() == (plain.reset() / 2).tolist()
        assert envs.step([0])[1].tolist() == [2.0]
        ended = [each for k in range(20) for each in envs.step([k % 2])[4]["episodes"]]
    assert [each.length for each in ended] == [7, 7, 7]
    wrapped = EnvSetup("Pendulum-v1", {}, (("forced", own.Forced),))
    with make_envs(wrapped) as envs:
        assert envs.single_action_space.n == 3


@pytest.mark.timeout(300)
def test_the_policy_is_the_same_for_any_number_of_workers(tmp_path):
    bent = {"env": "Pendulum-v1", "wrapper": [own.Forced, own.doubled], "env_kwargs": {"g": 5.0}}
    alone = train(tmp_path / "alone", **bent)
    two = train(tmp_path / "two", workers=2, **bent)
    other = train(tmp_path / "other", **{**bent, "env_kwargs": {"g": 9.0}})
    assert alone.policy_sha256 == two.policy_sha256 != other.policy_sha256
    assert alone.eval_return_mean == two.eval_return_mean


def test_a_run_records_them_and_is_evaluated_with_them(tmp_path, capsys):
    run = tmp_path / "run"
    result = train(run, wrapper=own.doubled, env_kwargs={"max_episode_steps": 3})
    assert result.eval_return_mean == 6.0
    twice = train(
        tmp_path / "twice", wrapper=[own.doubled] * 2, env_kwargs={"max_episode_steps": 3}
    )
    assert twice.eval_return_mean == 12.0
    text = (run / "config.yaml").read_text()
    assert "wrappers_of_tests:doubled" in text and "max_episode_steps=3" in text
    assert main(["eval", str(run), "--episodes", "2"]) == 0  # it is loaded already
    assert "mean return 6.0" in capsys.readouterr().out


def test_a_file_never_makes_a_wrapper_run(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    train(run, wrapper=own.doubled)
    WRAPPERS._known.clear()
    for ask in (muster.load_policy, muster.resume, muster.export):
        with pytest.raises(OptionError, match="uses 'wrappers_of_tests:doubled', which is code"):
            ask(run)
    with pytest.raises(OptionError, match=r"the run in .* has wrapper"):
        muster.load_policy(run, wrapper=[own.Halved])
    with pytest.raises(OptionError, match=r"is not possible: the run in .* has wrapper="):
        muster.resume(run, wrapper=[own.Halved])
    capsys.readouterr()
    words = ["--wrapper", "wrappers_of_tests:doubled"]
    assert main(["eval", str(run), "--episodes", "1", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)["returns"][0]
    assert found % 2 == 0 and found >= 16
    assert muster.resume(run, env_steps=1_024, wrapper=[own.doubled]).env_steps == 1_024
    (tmp_path / "config.yaml").write_text("wrapper: ['os:abort']\n")
    with pytest.raises(OptionError, match="wrapper names 'os:abort', which is code"):
        train(tmp_path / "other", config=tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wrapper": "doubled"}, "wrapper='doubled' is not possible"),
        ({"wrapper": 3}, "wrapper=3 is not possible"),
        ({"wrapper": ["wrappers_of_tests:doubledd"]}, "wrappers_of_tests:doubled"),
        ({"wrapper": ["wrappers_of_tests:NO_WRAPPER"]}, "a class or function of an environment"),
        ({"wrapper": own.fails}, "RuntimeError: it does not fit, raised in wrappers_of_tests"),
        ({"wrapper": own.nothing}, "made None, which is not an environment"),
        ({"env_kwargs": {"sutton_barto_rewards": True}}, "env_kwargs=sutton_barto_reward=True"),
        ({"env_kwargs": "g=3"}, "arguments of the environment are key=value"),
        ({"env_kwargs": ["g"]}, "arguments of the environment are key=value"),
        ({"env_kwargs": {"seed": 3}}, "muster itself sets the seed of environments"),
        ({"env_kwargs": {"g": own.doubled}}, "values are numbers, texts, booleans and lists"),
        ({"env_kwargs": ["g=&a 3"]}, "arguments of the environment are key=value"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, options, said):
    with pytest.raises(OptionError) as raised:
        train(tmp_path / "run", **options)
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 3 and not (tmp_path / "run").exists()


def test_arguments_are_typed_as_in_yaml():
    given = {"a": 1, "b": 2.5, "c": "yes it is", "d": True, "e": None, "f": [1, 2], "g": "1"}
    assert parse_env_kwargs(texts_of_kwargs(given)) == given
    assert parse_env_kwargs(["a=1e-3", "b=word", "c=false"]) == {"a": 1e-3, "b": "word", "c": False}


def test_envpool_has_no_wrappers():
    pytest.importorskip("envpool")
    setup = EnvSetup("CartPole-v1", {}, (("half", own.Halved),))
    with pytest.raises(OptionError, match="is not possible with EnvPool"):
        make_envs(setup, backend="envpool")


SCRIPT = """
import gymnasium as gym
import muster

class Mine(gym.RewardWrapper):
    def reward(self, reward):
        return 3.0

if __name__ == "__main__":
    result = muster.train("ppo", "CartPole-v1", wrapper=[Mine], env_kwargs={"max_episode_steps": 2},
                          run_dir="run", workers=2, env_steps=512, num_envs=4, rollout=64,
                          eval_episodes=1, quiet=True, stop_at=None)
    print(result.eval_return_mean)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_wrapper_of_a_script_goes_to_its_workers(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=200, env={**os.environ})  # fmt: skip
    assert (done.stdout, done.returncode) == ("6.0\n", 0), done.stderr


def test_the_command_line_takes_both(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train = ["train", "ppo", "CartPole-v1", "--run-dir", "run", "--workers", "0", "--quiet"]
    train += [
        "--env-steps",
        "512",
        "--eval-episodes",
        "1",
        "--wrapper",
        "wrappers_of_tests:doubled",
    ]
    assert main([*train, "--env-kwargs", "max_episode_steps=3", "sutton_barto_rewards=true"]) == 2
    assert "--env-kwargs sutton_barto_reward" in capsys.readouterr().err.splitlines()[2]
    assert main([*train, "--env-kwargs", "max_episode_steps=3"]) == 0
    printed = capsys.readouterr().out
    assert "mean return 6.0" in printed
    assert printed.splitlines()[-1].endswith("play run --wrapper wrappers_of_tests:doubled")
