"""Which backend runs an environment is a setting of the run: recorded, and kept by it."""

import json

import pytest

import muster
from muster.cli.main import main
from muster.envs import make
from muster.envs.errors import UnknownEnvError
from muster.run.yaml_text import load

pytest.importorskip("envpool")

PPO = {"num_envs": 4, "rollout": 8, "minibatches": 2, "epochs": 1, "hidden": (8,), "workers": 0}
QUICK = {"eval_every": 0, "eval_episodes": 2, "quiet": True, "env_steps": 64, "stop_at": None}


@pytest.mark.parametrize(("asked", "taken"), [("auto", "gymnasium"), ("envpool", "envpool")])
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_what_ran_it_is_recorded(tmp_path, algo, asked, taken):
    own = PPO if algo == "ppo" else {"train_every": 16, "hidden": (8,)}
    place = tmp_path / "run"
    result = muster.train(
        algo, "CartPole-v1", run_dir=str(place), backend=asked, **{**QUICK, **own}
    )
    assert result.backend == taken == json.loads((place / "result.json").read_text())["backend"]
    assert load((place / "config.yaml").read_text())["backend"] == taken
    assert muster.load_policy(place).backend == taken


@pytest.mark.filterwarnings("ignore::muster.errors.MusterWarning")  # EnvPool's episodes restart
def test_a_run_keeps_its_backend_whatever_is_installed_later(tmp_path, monkeypatch):
    """Its id was EnvPool's alone when it began, and Gymnasium has it by now, too."""

    def not_installed(env_id, env_kwargs):
        raise UnknownEnvError("no environment", "not installed", "nothing")

    with monkeypatch.context() as patch:
        patch.setattr(make, "env_maker", not_installed)
        patch.setattr(make, "surely_not_in_envpool", lambda *_: False)
        first = muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **QUICK, **PPO)
    assert first.backend == "envpool"
    more = muster.resume(tmp_path / "run", env_steps=128, quiet=True)
    assert (more.backend, more.env_steps) == ("envpool", 128)
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0


def test_another_backend_is_refused_on_resume(tmp_path, capsys):
    muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **QUICK, **PPO)
    assert main(["resume", str(tmp_path / "run"), "--backend", "envpool"]) == 2
    assert "has --backend gymnasium" in capsys.readouterr().err


def test_a_backend_that_there_is_not_is_refused(capsys):
    assert main(["train", "ppo", "CartPole-v1", "--backend", "julia"]) == 2
    assert "auto, gymnasium, envpool" in capsys.readouterr().err
