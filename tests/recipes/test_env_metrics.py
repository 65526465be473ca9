"""What an environment reports in `info` is in the run's metrics: each step and episode once."""

import io
import json

import pytest
import wrappers_of_tests as own

import muster
from muster import Task
from muster.errors import MusterWarning
from muster.recipes.progress import Progress

SMALL = {"eval_every": 0, "eval_episodes": 1, "quiet": True, "stop_at": None, "hidden": (8,)}
PPO = {"env_steps": 2_048, "num_envs": 4, "rollout": 64, "minibatches": 1, "epochs": 1}
REPLAY = {"env_steps": 1_024, "learning_starts": 100, "batch_size": 8}


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def train(run, algo, env="CartPole-v1", wrapper=(own.Telling,), **options):
    told = {**SMALL, "wrapper": list(wrapper), **options}
    return muster.train(algo, env, run_dir=str(run), **told)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("ppo", {"workers": 0, **PPO}),
        ("a2c", {"workers": 0, "env_steps": 1_024}),
        ("pqn", {"workers": 0, "env_steps": 1_024}),
        ("dqn", {"workers": 0, **REPLAY}),
        ("r2d2", {"workers": 0, "env_steps": 1_024}),
        ("impala", {"workers": 0, "env_steps": 2_000}),
        ("a3c", {"workers": 0, "env_steps": 1_024}),
        ("dqn", {"workers": 3, **REPLAY}),
        pytest.param("apex", {"workers": 3, "env_steps": 2_000}, marks=pytest.mark.slow),
        pytest.param("appo", {"workers": 3, "env_steps": 4_000}, marks=pytest.mark.slow),
        pytest.param("a3c", {"workers": 3, "env_steps": 4_000}, marks=pytest.mark.slow),
        pytest.param("ppo", {"workers": 2, "engine": "ray", **PPO}, marks=pytest.mark.slow),
        pytest.param("dqn", {"workers": 3, "engine": "ray", **REPLAY}, marks=pytest.mark.slow),
    ],
)
def test_metrics_of_an_environment_reach_the_lines_of_every_algorithm(tmp_path, algo, options):
    train(tmp_path / "run", algo, **options)
    lines = [line for line in lines_of(tmp_path / "run") if "collect/episodes" in line]
    assert lines
    for line in lines:  # this environment's success is the length of the episode
        assert line["env/is_success"] == pytest.approx(line["collect/length"])
        assert 0.0 <= line["env/pushes"] <= 1.0
        assert 0.0 < line["env/alive"] < 1.0
    (events,) = (tmp_path / "run" / "tb").iterdir()
    assert b"env/is_success" in events.read_bytes()


@pytest.mark.timeout(300)
def test_any_number_of_workers_writes_the_same_metrics_and_makes_the_same_policy(tmp_path):
    alone = train(tmp_path / "alone", "ppo", workers=0, **PPO)
    two = train(tmp_path / "two", "ppo", workers=2, **PPO)
    silent = train(tmp_path / "silent", "ppo", workers=0, wrapper=(), **PPO)
    assert alone.policy_sha256 == two.policy_sha256 == silent.policy_sha256
    one, other, none = (
        [{name: line[name] for name in line if name.startswith("env/")} for line in lines_of(run)]
        for run in (tmp_path / "alone", tmp_path / "two", tmp_path / "silent")
    )
    assert one == other and all(len(line) == 3 for line in one)
    assert not any(none)


def test_a_resumed_run_counts_every_step_once(tmp_path):
    whole = train(tmp_path / "whole", "ppo", workers=0, **PPO)
    train(tmp_path / "half", "ppo", workers=0, **{**PPO, "env_steps": 1_024})
    muster.resume(tmp_path / "half", env_steps=2_048, wrapper=[own.Telling])
    last = [lines_of(tmp_path / run)[-1] for run in ("whole", "half")]
    assert last[0]["env_step"] == whole.env_steps
    assert {k: v for k, v in last[0].items() if k.startswith("env/")} == {
        k: v for k, v in last[1].items() if k.startswith("env/")
    }


def test_what_is_no_number_is_left_out_with_one_warning(tmp_path):
    with pytest.warns(MusterWarning, match=r"'colour' is 'red', and no number") as said:
        train(tmp_path / "run", "ppo", workers=0, wrapper=(own.Colourful,), **PPO)
    assert len([each for each in said if "colour" in str(each.message)]) == 1
    assert {n for line in lines_of(tmp_path / "run") for n in line if n.startswith("env/")} == {
        "env/fine"
    }


def test_the_progress_line_shows_them():
    def tell(ctx):
        ctx.keep("env_step")
        ctx.env_step = ctx.get("env_step", 0) + 10
        ctx.own_metrics = {"env/is_success": 0.8333, "own/thing": 12.0}

    shown = io.StringIO()
    Task().use(Progress(100, file=shown)).use(tell).run(10)
    assert "  is_success 0.833  own/thing 12  in 0:00" in shown.getvalue().splitlines()[-1]
