"""Middleware of the user's own in a run: seen in its metrics, and never named by a file alone."""

import json

import hooks_of_tests
import pytest

import muster
from muster.cli.main import main
from muster.errors import OptionError

ANSWER = {"env_step", "train_iter", "seconds", "eval/return"}
SMALL = {"eval_every": 0, "eval_episodes": 1, "quiet": True, "stop_at": None}


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("ppo", {"workers": 0, "env_steps": 4_096}),
        ("ppo", {"workers": 2, "env_steps": 4_096}),
        ("dqn", {"workers": 0, "env_steps": 1_024}),
        ("dqn", {"workers": 3, "env_steps": 1_024}),
        pytest.param("impala", {"workers": 3, "env_steps": 4_000}, marks=pytest.mark.slow),
        pytest.param("a3c", {"workers": 3, "env_steps": 4_000}, marks=pytest.mark.slow),
        pytest.param("dqn", {"learners": 2, "env_steps": 1_024}, marks=pytest.mark.slow),
        pytest.param(
            "ppo", {"workers": 2, "engine": "ray", "env_steps": 4_096}, marks=pytest.mark.slow
        ),
    ],
)
def test_what_hooks_log_is_in_every_line_of_metrics(tmp_path, algo, options):
    run = tmp_path / "run"
    use = [hooks_of_tests.halves, hooks_of_tests.around]
    muster.train(algo, "CartPole-v1", run_dir=str(run), use=use, **{**SMALL, **options})
    # An answer of the evaluator's process has a line of its own.
    lines = [line for line in lines_of(run) if not line.keys() <= ANSWER]
    assert lines and all(line["own/halves"] == line["env_step"] / 2 for line in lines)
    assert all(line["own/steps_of_loop"] > 0 for line in lines[1:])


def test_hooks_change_no_bit_of_the_policy(tmp_path):
    told = {**SMALL, "env_steps": 4_096, "workers": 0}
    plain = muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "plain"), **told)
    hooked = muster.train(
        "ppo", "CartPole-v1", run_dir=str(tmp_path / "hooked"), use=hooks_of_tests.halves, **told
    )
    assert plain.policy_sha256 == hooked.policy_sha256


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_hook_can_end_a_run_which_then_saves_and_says_so(tmp_path, workers):
    told = {**SMALL, "env_steps": 50_000, "workers": workers, "use": [hooks_of_tests.stop_early]}
    result = muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **told)
    assert result.stopped_by == "hook" and 1_000 <= result.env_steps < 10_000
    assert (tmp_path / "run" / "checkpoints" / f"step-{result.env_steps}").is_dir()


def test_a_hook_sees_the_evaluation_of_its_loop(tmp_path):
    seen = []

    def look(ctx):
        if "evaluation" in ctx:
            seen.append((ctx.env_step, ctx.evaluation.mean))

    told = {**SMALL, "eval_every": 2_048, "env_steps": 4_096, "workers": 0, "use": [look]}
    muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **told)
    written = [(line["env_step"], line["eval/return"]) for line in lines_of(tmp_path / "run")
               if "eval/return" in line]  # fmt: skip
    assert seen == written and len(seen) == 2


def test_the_command_line_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hooks_here.py").write_text("def one(ctx):\n    ctx.log('own/one', 1)\n")
    words = ["--env-steps", "2048", "--workers", "0", "--eval-episodes", "1", "--quiet"]
    train = ["train", "ppo", "CartPole-v1", "--run-dir", "run", *words]
    assert main([*train, "--use", "hooks_here:one"]) == 0
    assert all(line["own/one"] == 1 for line in lines_of(tmp_path / "run"))


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (["hooks_of_tests:halvez"], "hooks_of_tests has no 'halvez'"),
        (["no_such_module:hook"], "No module named 'no_such_module'"),
        (["halves"], "use='halves' is not possible"),
        ([3], "use=3 is not possible"),
        (3, "use=3 is not possible"),
        ([hooks_of_tests.later], "is a function or a generator of ctx"),
        (["hooks_of_tests:NO_HOOK"], "is a function or a generator of ctx"),
    ],
)
def test_what_is_no_hook_is_refused_before_anything_is_written(tmp_path, use, said):
    with pytest.raises(OptionError, match=said):
        muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), use=use)
    assert not (tmp_path / "run").exists()


def test_a_file_never_makes_a_hook_run(tmp_path):
    (tmp_path / "config.yaml").write_text("use: ['os:abort']\n")
    with pytest.raises(OptionError, match="which is code"):
        muster.train("ppo", "CartPole-v1", config=tmp_path / "config.yaml")
    told = {**SMALL, "env_steps": 2_048, "workers": 0, "use": [hooks_of_tests.halves]}
    muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **told)
    text = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(text.replace("hooks_of_tests:halves", "os:abort"))
    with pytest.raises(OptionError, match="uses 'os:abort', which is code"):
        muster.resume(tmp_path / "run", env_steps=4_096)
    resumed = muster.resume(tmp_path / "run", env_steps=4_096, use=[hooks_of_tests.around])
    assert resumed.env_steps == 4_096
    assert "own/steps_of_loop" in lines_of(tmp_path / "run")[-1]
