"""What a newcomer types: words of other frameworks, round numbers, ids that are named otherwise."""

import subprocess
import sys

import pytest

import muster
from muster.cli.main import main
from muster.envs import UnknownEnvError, make_envs
from muster.errors import OptionError
from muster.version import __version__


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_the_version(words, capsys):
    assert main(words) == 0
    assert capsys.readouterr().out == f"muster {__version__}\n"


@pytest.mark.parametrize("words", [["help"], ["--help"], ["help", "train"], ["help", "resume"]])
def test_help_is_a_verb_too(words, capsys):
    assert main(words) == 0
    assert "usage: muster" in capsys.readouterr().out


def test_python_m_muster_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "muster", "--version"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, f"muster {__version__}\n")


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("learning-rate", "lr"),
        ("total-timesteps", "env-steps"),
        ("n-envs", "num-envs"),
        ("ent-coef", "entropy-coef"),
        ("n-epochs", "epochs"),
        ("num-workers", "workers"),
        ("learning_rate", "lr"),
    ],
)
def test_a_word_of_another_framework_leads_to_ours(word, ours, capsys):
    assert main(["train", "ppo", "CartPole-v1", f"--{word}", "1"]) == 2
    assert f"the nearest is --{ours}\n" in capsys.readouterr().err
    with pytest.raises(OptionError, match=f"'{ours.replace('-', '_')}'"):
        muster.train("ppo", "CartPole-v1", **{word.replace("-", "_"): 1})


@pytest.mark.parametrize("steps", ["512", "5.12e2", "512.0", "5_12"])
def test_a_round_number_may_be_written_as_people_write_it(tmp_path, steps, capsys):
    place = tmp_path / "run"
    words = ["train", "ppo", "CartPole-v1", "--env-steps", steps, "--workers", "0", "--quiet"]
    words += ["--rollout", "64", "--eval-episodes", "1", "--run-dir", str(place)]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("512 steps")


@pytest.mark.parametrize("steps", ["1.5", "1e-3", "many", "nan", "inf"])
def test_what_is_no_whole_number_is_refused(steps, capsys):
    assert main(["train", "ppo", "CartPole-v1", "--env-steps", steps]) == 2
    assert "it must be a whole number" in capsys.readouterr().err


def test_a_float_gets_the_whole_number_that_was_meant():
    with pytest.raises(OptionError, match="try: env_steps=10000"):
        muster.train("ppo", "CartPole-v1", env_steps=1e4)


def test_an_id_that_is_like_no_other_gets_no_nearest():
    with pytest.raises(UnknownEnvError) as caught:
        make_envs("Nope-v0")
    assert caught.value.nearest is None
    with pytest.raises(UnknownEnvError, match="Nearest: 'CartPole-v1'"):
        make_envs("CartPol-v1")


def test_a_module_in_the_current_folder_is_found(tmp_path):
    (tmp_path / "here_env.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gym.register('Here-v0', CartPoleEnv, max_episode_steps=100)\n"
    )
    words = ["train", "ppo", "here_env:Here-v0", "--env-steps", "2048", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "muster", *words, "--eval-episodes", "1", "--quiet"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_terminal_gets_a_long_message_folded_at_words_and_a_command_that_can_be_copied(
    monkeypatch, capsys
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["train", "ppo", "CartPole-v1", "--device", "cudda"]) == 2
    *said, to_try = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and max(map(len, said)) <= 60
    assert said[0].startswith("muster: ") and said[1].startswith("  why: ")
    assert said[2].startswith("       ")
    assert to_try.endswith("muster train ppo CartPole-v1 --device cuda")
