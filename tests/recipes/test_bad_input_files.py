"""Options from a file, networks by name, and that no file makes code run."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest

from muster.cli.main import main
from muster.envs import UnknownEnvError
from muster.errors import OptionError
from muster.nets import registry
from muster.recipes.policy import load_policy
from muster.recipes.settings import resolve
from muster.recipes.train import train

SMALL = {"env_steps": 64, "num_envs": 2, "train_every": 32, "updates_per_train": 2, "quiet": True}
SMALL |= {"learning_starts": 16, "batch_size": 8, "eval_episodes": 1, "stop_at": None}

CODE = """
import pathlib
pathlib.Path({marker!r}).touch()
import torch

class Net(torch.nn.Module):
    def __init__(self, obs_space, n_actions):
        super().__init__()
        self.layer = torch.nn.Linear(obs_space.shape[0], n_actions)

    def forward(self, obs):
        return self.layer(obs)
"""


@pytest.fixture(autouse=True)
def forget_models(monkeypatch):
    monkeypatch.setattr(registry, "_models", {})


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A module of the user's in the working directory; importing it leaves a marker."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_code.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
    yield "own_code:Net"
    sys.modules.pop("own_code", None)


def test_the_command_line_comes_before_the_file_the_preset_and_the_default(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("algo: dqn\nenv: CartPole-v1\nlr: 0.5\nbatch_size: 32\nhidden: [8, 8]\n")
    config = resolve("dqn", "CartPole-v1", {"lr": 0.25}, file).config
    assert (config.lr, config.batch_size, config.hidden) == (0.25, 32, (8, 8))
    assert config.target_update == 200, "of the preset"
    assert config.tau == 1.0, "the default"


def test_a_run_can_be_repeated_with_its_own_config(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = train("dqn", "CartPole-v1", run_dir="first", seed=5, hidden=(8,), **SMALL)
    assert "run_dir" not in (tmp_path / "first" / "config.yaml").read_text(), "not where it was"
    again = train("dqn", "CartPole-v1", config="first/config.yaml", run_dir="again")
    assert again.policy_sha256 == first.policy_sha256
    arguments = ["train", "dqn", "CartPole-v1", "--run-dir", "cli", "--config=first/config.yaml"]
    assert main(arguments) == 0
    assert f"policy {first.policy_sha256[:12]}" in capsys.readouterr().out
    assert main([*arguments, "--seed", "6", "--run-dir", "other"]) == 0
    assert f"policy {first.policy_sha256[:12]}" not in capsys.readouterr().out


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lrr: 1", "the nearest is 'lr'"),
        ("lr: abc", "a wrong 'lr'"),
        ("lr: 1\nlr: 2", "second time"),
        ("lr: !!python/object/apply:os.system ['touch ran']", "tag"),
        ("!!python/object:os.system {}", "tag"),
        (LAUGHS, "anchor"),
        ("[1, 2]", "a mapping"),
        ("lr: [", "cannot be read"),
        ("lr: " + "9" * 70_000, "the limit is"),
        ("x" * 10 + "\0", "cannot be read"),
        ("algo: ppo", "it is for algo 'ppo'"),
        ("env: Acrobot-v1", "it is for env 'Acrobot-v1'"),
        ("env: [1]", "it is for env [1]"),
        ("model: own_code:Net", "is code"),
        ("resume: true", "needs a run"),
        ("device: cdua", "there are: auto, cpu, cuda, mps, xpu"),
    ],
)
def test_a_bad_file_is_refused_and_nothing_runs(text, said, own_code, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(text)
    before = sorted(os.listdir(tmp_path))
    assert main(["train", "dqn", "CartPole-v1", "--config", "config.yaml"]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 3 and said in shown, shown
    with pytest.raises(OptionError):
        train("dqn", "CartPole-v1", config=tmp_path / "config.yaml")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("path", ["", "nowhere", ".", "a\0b", "x" * 300])
def test_a_file_that_cannot_be_read_is_refused(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dqn", "CartPole-v1", f"--config={path}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert os.listdir(tmp_path) == []


def test_bytes_that_are_no_text_are_refused(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="cannot be read"):
        resolve("dqn", "CartPole-v1", {}, file)


@pytest.mark.parametrize("model", ["mlp", None])
def test_a_model_of_musters_own_is_trained_by_name(model, tmp_path):
    path = tmp_path / "run"
    result = train("dqn", "CartPole-v1", run_dir=str(path), model=model, **SMALL)
    assert load_policy(path).checkpoint.step == result.env_steps == 64


def test_code_is_loaded_for_who_names_it_and_never_for_a_file(own_code, tmp_path):
    options = {"run_dir": "run", "model": own_code, **SMALL}
    result = train("dqn", "CartPole-v1", **options)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()

    # Somebody else finds the run: another process, so to say.
    sys.modules.pop("own_code")
    registry._models.clear()
    with pytest.raises(OptionError, match="a network from code, 'own_code:Net'"):
        load_policy("run")
    del options["model"]
    with pytest.raises(OptionError, match="a network from code, 'own_code:Net'"):
        train("dqn", "CartPole-v1", **{**options, "resume": True})
    with pytest.raises(OptionError, match="is of the model 'own_code:Net'"):
        train("dqn", "CartPole-v1", **{**options, "run_dir": "new", "from_checkpoint": "run"})
    assert not (tmp_path / "ran").exists() and not (tmp_path / "new").exists()

    policy = load_policy("run", model=own_code)
    assert policy._agent.policy_sha256() == result.policy_sha256
    from own_code import Net

    registry._models.clear()
    assert load_policy("run", model=Net)._agent.policy_sha256() == result.policy_sha256
    more = train("dqn", "CartPole-v1", **{**options, "resume": True, "env_steps": 128},
                 model=own_code)  # fmt: skip
    assert more.env_steps == 128


def test_the_environment_of_a_file_is_not_imported(own_code, tmp_path):
    train("dqn", "CartPole-v1", run_dir="run", **SMALL)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("env: CartPole-v1", "env: own_code:CartPole-v1"))
    with pytest.raises(OptionError, match="an environment from code"):
        load_policy("run")
    assert not (tmp_path / "ran").exists()
    assert load_policy("run", env="CartPole-v1").env == "CartPole-v1"


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe", b"env: [1]", b"lr: !!python/none x", b"lr: x"]
)
def test_a_run_whose_config_was_damaged_is_refused(content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train("dqn", "CartPole-v1", run_dir="run", **SMALL)
    (tmp_path / "run" / "config.yaml").unlink()
    if content is not None:
        (tmp_path / "run" / "config.yaml").write_bytes(content)
    for arguments in (
        ["eval", "run"],
        ["train", "dqn", "CartPole-v1", "--run-dir", "new", "--from-checkpoint", "run"],
    ):
        if content in (None, b"\xff\xfe", b"lr: !!python/none x") or arguments[0] == "eval":
            assert main(arguments) == 2
            assert len(capsys.readouterr().err.splitlines()) == 3
            assert not (tmp_path / "new").exists()


def test_from_python_an_unknown_environment_is_answered_in_python():
    with pytest.raises(UnknownEnvError, match=r"try: muster.train\('dqn', 'CartPole-v1'\)"):
        train("dqn", "CartPole-v7")


@pytest.mark.parametrize("verb", ["eval", "play"])
def test_eval_and_play_want_the_code_to_be_named(verb, own_code, tmp_path):
    train("dqn", "CartPole-v1", run_dir="run", model=own_code, **SMALL)
    (tmp_path / "ran").unlink()
    command = [sys.executable, "-m", "muster.cli.main", verb, "run", "--episodes", "1"]
    command += ["--video", "x.mp4"] if verb == "play" else []
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 2 and "--model own_code:Net" in answer.stderr, answer.stderr
    assert len(answer.stderr.splitlines()) == 3 and not (tmp_path / "ran").exists()
    command += ["--model", "own_code:Net"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)


def test_a_module_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_code.py").write_text("1 / 0\n")
    with pytest.raises(OptionError, match="ZeroDivisionError"):
        train("dqn", "CartPole-v1", model="broken_code:Net", **SMALL)
    assert not (tmp_path / "runs").exists()
    assert str(tmp_path) not in sys.path
