"""Whose settings a resumed run has, what may change, and how a run at its limit is completed."""

import json
from dataclasses import fields

import pytest

import muster
from muster.cli.main import main
from muster.errors import OptionError
from muster.recipes.resuming import OF_THE_COMMAND, plan_resume, saved_run
from muster.recipes.settings import all_options
from muster.run import RunDirectory
from muster.run.yaml_text import load

PPO = {
    "rollout": 8,
    "num_envs": 4,
    "minibatches": 2,
    "epochs": 2,
    "hidden": (8,),
    "lr": 5e-5,
    "gamma": 0.9,
}
DQN = {"train_every": 32, "updates_per_train": 2, "learning_starts": 64, "hidden": (8,), "lr": 5e-5}
QUICK = {"seed": 7, "eval_every": 64, "checkpoint_every": 64, "eval_episodes": 3, "stop_at": 501.0}
WAYS = {
    "ppo-serial": ("ppo", {**PPO, "workers": 0}),
    "ppo-nodes": ("ppo", {**PPO, "workers": 2}),
    "dqn-serial": ("dqn", {**DQN, "workers": 0}),
}
STEPS = 256


def begin(place, way, **more):
    algo, options = WAYS[way]
    options = {**QUICK, **options, "env_steps": STEPS, "quiet": True, **more}
    return muster.train(algo, "CartPole-v1", run_dir=str(place), **options)


def config(place):
    return load((place / "config.yaml").read_text())


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_has_its_own_settings(tmp_path, way):
    begin(tmp_path / "run", way)
    more = muster.resume(tmp_path / "run", env_steps=2 * STEPS, quiet=True)
    whole = begin(tmp_path / "whole", way, env_steps=2 * STEPS)
    assert (more.env_steps, more.seed) == (whole.env_steps, 7)
    assert more.policy_sha256 == whole.policy_sha256
    settings = config(tmp_path / "run")
    history = settings.pop("history")
    assert settings == config(tmp_path / "whole")
    changed = {"env_steps": {"from": STEPS, "to": 2 * STEPS}}
    assert history == [{"env_step": STEPS, "changed": changed}]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_has_ended_is_only_completed(tmp_path, way, capsys):
    """Once as it is, and once killed between its last checkpoint and its result."""
    first = begin(tmp_path / "run", way)
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    again = muster.resume(tmp_path / "run")
    assert "has reached its 256 steps" in capsys.readouterr().err
    (tmp_path / "run" / "result.json").unlink()
    completed = muster.resume(tmp_path / "run")
    for other in (again, completed):
        assert (other.env_steps, other.stopped_by) == (STEPS, "steps")
        assert other.policy_sha256 == first.policy_sha256
        assert other.eval_return_mean == first.eval_return_mean
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == metrics
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written["policy_sha256"] == first.policy_sha256


@pytest.mark.parametrize("way", WAYS)
def test_a_run_at_its_target_is_only_completed_unless_the_target_moves(tmp_path, way, capsys):
    first = begin(tmp_path / "run", way, env_steps=10_000, stop_at=1.0)
    assert (first.stopped_by, first.env_steps) == ("target", 64)
    again = muster.resume(tmp_path / "run")
    assert "has reached its target" in capsys.readouterr().err
    assert (again.policy_sha256, again.stopped_by) == (first.policy_sha256, "target")
    more = muster.resume(tmp_path / "run", stop_at=501.0, env_steps=128, quiet=True)
    assert more.env_steps == 128


def test_a_change_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    begin(tmp_path / "run", "ppo-serial")
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "run", "--env-steps", "320", "--lr", "1e-3"]) == 0
    line = capsys.readouterr().err.splitlines()[0]
    assert line == "muster: run resumes at step 256 with env_steps 256 -> 320, lr 5e-05 -> 0.001"
    assert config(tmp_path / "run")["lr"] == 1e-3
    assert main(["resume", str(tmp_path / "run"), "--lr", "1e-3", "--env-steps", "384"]) == 0
    steps = [each["env_step"] for each in config(tmp_path / "run")["history"]]
    assert steps == [256, 320]


def test_changes_that_are_too_long_for_a_line_are_said_one_by_one(tmp_path, monkeypatch, capsys):
    begin(tmp_path / "run", "ppo-serial")
    monkeypatch.chdir(tmp_path)
    changes = ["--env-steps", "320", "--lr", "1e-3", "--stop-at", "501", "--eval-episodes", "2"]
    assert main(["resume", "run", *changes]) == 0
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == "muster: run resumes at step 256 with"
    assert {"muster:   env_steps 256 -> 320", "muster:   lr 5e-05 -> 0.001"} <= {*rest}
    assert max(map(len, [first, *rest])) <= 80


def test_the_directory_alone_is_enough(tmp_path, capsys):
    place = tmp_path / "run"
    first = begin(place, "ppo-serial")
    for words in (
        ["resume", str(place)],
        ["train", "--run-dir", str(place), "--resume"],
        ["train", "--resume", "--run-dir", str(place)],
        ["train", "ppo", "CartPole-v1", "--run-dir", str(place), "--resume"],
    ):
        assert main(words) == 0
        assert first.policy_sha256[:12] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--seed", "8"], "--seed 8 is not possible"),
        (["--hidden", "16"], "--hidden 16 is not possible"),
        (["--num-envs", "8"], "--num-envs 8 is not possible"),
        (["--slots", "2"], "--slots 2 is not possible"),
        (["--lr", "-1"], "--lr -1.0 is not possible"),
        (["--workers", "64"], "contradict"),
        (["--no-such-option"], "there is no option"),
        (["--from-checkpoint", "x"], "cannot be used together"),
        (["--env-steps", "64"], "--env-steps 64 is not possible: the run has done"),
    ],
)
def test_what_cannot_change_is_refused_before_anything_is_touched(tmp_path, capsys, words, what):
    place = tmp_path / "run"
    begin(place, "ppo-serial")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert main(["resume", str(place), *words]) == 2
    error = capsys.readouterr().err
    assert what in error and len(error.splitlines()) == 3
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_fewer_steps_than_a_run_has_done_are_refused_before_anything_is_touched(tmp_path):
    begin(tmp_path / "run", "ppo-serial")
    before = config(tmp_path / "run"), (tmp_path / "run" / "result.json").read_bytes()
    with pytest.raises(OptionError, match=f"env_steps=64 .* the run has done {STEPS}"):
        muster.resume(tmp_path / "run", env_steps=64, quiet=True)
    assert before == (config(tmp_path / "run"), (tmp_path / "run" / "result.json").read_bytes())


@pytest.mark.parametrize("words", [["dqn", "CartPole-v1"], ["ppo", "Acrobot-v1"]])
def test_another_algorithm_or_environment_is_refused(tmp_path, capsys, words):
    begin(tmp_path / "run", "ppo-serial")
    assert main(["train", *words, "--run-dir", str(tmp_path / "run"), "--resume"]) == 2
    error = capsys.readouterr().err
    assert "is of ppo on CartPole-v1" in error and f"muster resume {tmp_path / 'run'}" in error


NEEDS_MORE = ("bf16", "compile", "wandb", "lag", "device", "freeze_backbone")
"""Options that need a processor, a package or another option."""


def another(value):
    """Return a legal value that is not the default, where one follows from the type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and value:
        return value * 2
    if isinstance(value, float) and 0 < value < 1:
        return value / 2
    return value


@pytest.mark.parametrize("way", ["ppo-serial", "dqn-serial"])
def test_every_option_of_a_run_is_the_one_it_is_resumed_with(tmp_path, way):
    """All options at once, none with its default where another can be told from its type."""
    algo, _ = WAYS[way]
    own = {
        field.name: another(field.default)
        for field in fields(all_options(algo))
        if field.name not in (*OF_THE_COMMAND, *NEEDS_MORE)
    }
    own |= {"rollout": 16, "minibatches": 2, "num_envs": 4 if algo == "dqn" else 8, "slots": 2}
    own |= {"env_steps": 128, "eval_episodes": 1, "stop_at": 501.0, "workers": 0, "epochs": 2}
    own |= {"train_every": 32, "learning_starts": 64, "updates_per_train": 2, "replay_shards": 0}
    own |= {"backend": "gymnasium", "munchausen": False}  # it contradicts double and n_step
    own = {name: own[name] for name in own if name in {f.name for f in fields(all_options(algo))}}
    place = tmp_path / "run"
    muster.train(algo, "CartPole-v1", run_dir=str(place), quiet=True, **own)
    saved = saved_run(place)
    plan = plan_resume(None, None, {"run_dir": str(place), "resume": True})
    assert plan.changes == {}
    for name, value in own.items():
        assert plan.settings.value(name) == value == saved.options[name], name


def test_the_best_checkpoint_is_not_a_place_to_resume_from(tmp_path):
    begin(tmp_path / "run", "dqn-serial")
    best = RunDirectory.open(tmp_path / "run").best.path()
    with pytest.raises(OptionError, match="cannot be resumed"):
        muster.resume(best)
    new = muster.train(
        "dqn", "CartPole-v1", run_dir=str(tmp_path / "new"), from_checkpoint=str(best),
        env_steps=64, eval_episodes=1, hidden=(8,), quiet=True,
    )  # fmt: skip
    assert new.env_steps >= 64


def test_a_checkpoint_without_replay_is_said_to_be_one(tmp_path, capsys):
    begin(tmp_path / "run", "dqn-serial", save_replay=False)
    muster.resume(tmp_path / "run", env_steps=2 * STEPS, save_replay=True)
    assert "has no replay: the run begins with an empty one" in capsys.readouterr().err


def test_a_config_that_is_no_muster_config_is_refused(tmp_path, capsys):
    begin(tmp_path / "run", "ppo-serial")
    (tmp_path / "run" / "config.yaml").write_text("lr: 1\n")
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "names no algorithm" in capsys.readouterr().err
