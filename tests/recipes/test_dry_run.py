"""`--dry-run`: the checks of a run and what it would do, with no process and no file."""

import multiprocessing
import os

import pytest

import muster
from muster.cli.main import main
from muster.recipes.dry_run import dry_run
from muster.run.yaml_text import load

PPO = {"env_steps": 512, "num_envs": 4, "rollout": 64, "minibatches": 1, "epochs": 1,
       "hidden": (8,), "eval_episodes": 1, "quiet": True, "workers": 0}  # fmt: skip


LEARNER = "learner 1, evaluator 1, "


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def everything_in(folder):
    return sorted(
        (str(path.relative_to(folder)), path.stat().st_mtime_ns) for path in folder.rglob("*")
    )


@pytest.mark.parametrize(
    ("algo", "env", "words", "processes"),
    [
        ("ppo", "CartPole-v1", ["--workers", "0"], "this one alone"),
        ("ppo", "CartPole-v1", ["--workers", "2"], "worker 2; engine local"),
        ("a2c", "CartPole-v1", ["--workers", "2"], "worker 2; engine local"),
        ("pqn", "CartPole-v1", ["--workers", "2"], "worker 2; engine local"),
        ("dqn", "CartPole-v1", ["--workers", "4"], LEARNER + "actor 2; engine local"),
        ("dqn", "CartPole-v1", ["--learners", "2"], "learner 1, replica 1; engine local"),
        ("sac", "Pendulum-v1", ["--workers", "3"], LEARNER + "actor 1; engine local"),
        ("apex", "CartPole-v1", ["--replay-shards", "1", "--workers", "5"],
         LEARNER + "replay 1, actor 2; engine local"),
        ("r2d2", "CartPole-v1", ["--workers", "0"], "this one alone"),
        ("impala", "CartPole-v1", ["--workers", "4"], LEARNER + "actor 2; engine local"),
        ("appo", "CartPole-v1", ["--workers", "3..6", "--engine", "ray"],
         LEARNER + "actor 1..4; engine ray"),
        ("a3c", "CartPole-v1", ["--workers", "4"], LEARNER + "worker 2; engine local"),
    ],
)  # fmt: skip
def test_it_says_what_every_algorithm_would_run_and_leaves_nothing_behind(
    tmp_path, capsys, algo, env, words, processes
):
    assert main(["train", algo, env, *words, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"processes {processes} network" in said
    assert f"run directory runs/{env}/{algo}/<date-time>-0" in said
    assert f"environment {env}, run by gymnasium" in said
    assert "parameters, run by compiled kernels on cpu memory" in said
    assert said.endswith("nothing was started, and nothing was written")
    assert everything_in(tmp_path) == []
    assert multiprocessing.active_children() == []


def test_the_config_it_prints_is_the_one_of_the_run(tmp_path):
    told = dry_run("ppo", "CartPole-v1", **PPO)
    result = muster.train("ppo", "CartPole-v1", **PPO)
    assert told.config == (result.run_dir / "config.yaml").read_text()
    assert load(told.config)["rollout"] == 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ppo", "CartPole-v7"], "muster train ppo CartPole-v1"),
        (["ppo", "CartPole-v1", "--lrr", "1"], "there is no option --lrr"),
        (["dqn", "Pendulum-v1"], "muster train ppo Pendulum-v1"),
        (["dqn", "CartPole-v1", "--buffer-size", "1e10"], "does not fit into memory"),
        (["ppo", "CartPole-v1", "--model", "no_such"], "no_such"),
        (["ppo", "CartPole-v1", "--run-dir", "full"], "full is not empty"),
        (["ppo", "CartPole-v1", "--run-dir", "full/file/run"], "could not be created"),
        (["ppo", "CartPole-v1", "--eval-env", "Acrobot-v1"], "its observations are"),
        (["ppo", "CartPole-v1", "--use", "no_such_module:hook"], "no_such_module"),
        (["ppo", "CartPole-v1", "--from-checkpoint", "nowhere"], "there is no run in"),
    ],
)
def test_what_a_run_refuses_it_refuses_in_the_same_words(tmp_path, capsys, words, said):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("here")
    before = everything_in(tmp_path)
    assert main(["train", *words, "--dry-run"]) == 2
    dry = capsys.readouterr().err
    assert said in dry and len(dry.splitlines()) == 3
    assert everything_in(tmp_path) == before
    assert main(["train", *words]) == 2
    assert capsys.readouterr().err == dry


def test_a_run_can_be_resumed_dry(tmp_path, capsys):
    run = tmp_path / "run"
    muster.train("ppo", "CartPole-v1", run_dir=str(run), **PPO)
    before = everything_in(tmp_path)
    assert main(["resume", "run", "--env-steps", "1024", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "starts from run/checkpoints/step-512, step 512" in said
    assert "changes env_steps 512 -> 1024" in said
    assert main(["resume", "run", "--dry-run"]) == 0
    assert "only evaluation and result would be completed" in capsys.readouterr().out
    assert main(["resume", "run", "--seed", "3", "--dry-run"]) == 2
    assert "--seed 3 is not possible" in capsys.readouterr().err
    assert everything_in(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path, capsys):
    os.chmod(tmp_path, 0o500)
    assert main(["train", "ppo", "CartPole-v1", "--dry-run"]) == 2
    assert "could not be created: Permission denied" in capsys.readouterr().err
