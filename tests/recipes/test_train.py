"""The serial half of the product: the same policy for the same seed, and after a resume."""

import json
import signal
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from muster.algos.dqn import DQNConfig
from muster.errors import OptionError
from muster.recipes.graceful import StopRequest
from muster.recipes.options import TrainOptions
from muster.recipes.policy import load_policy
from muster.recipes.train import train
from muster.run import RunDirectory
from muster.workers import evaluate_policy

SMALL = {
    "seed": 3,
    "num_envs": 2,
    "hidden": (16, 16),
    "train_every": 32,
    "updates_per_train": 4,
    "target_update": 8,
    "learning_starts": 64,
    "buffer_size": 500,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 2,
    "checkpoint_every": 0,
    "quiet": True,
}


def run(tmp_path, name, env_steps, **options):
    return train(
        "dqn",
        "CartPole-v1",
        env_steps=env_steps,
        run_dir=str(tmp_path / name),
        **{**SMALL, **options},
    )


def test_the_same_seed_gives_the_same_policy_and_another_seed_another(tmp_path):
    first = run(tmp_path, "a", 640)
    assert first.policy_sha256 == run(tmp_path, "b", 640).policy_sha256
    assert first.policy_sha256 != run(tmp_path, "c", 640, seed=4).policy_sha256


@pytest.mark.parametrize("variant", [{}, {"prioritized": True, "n_step": 3}, {"dueling": True}])
def test_a_run_that_was_stopped_and_resumed_at_20_points_equals_one_that_was_not(tmp_path, variant):
    whole = run(tmp_path, "whole", 20 * 64, **variant)
    for stop in range(1, 21):
        part = run(tmp_path, "parts", stop * 64, resume=stop > 1, **variant)
        assert part.env_steps == stop * 64
    assert part.policy_sha256 == whole.policy_sha256
    assert part.train_iter == whole.train_iter
    for name, saved in saved_parts(tmp_path / "whole").items():
        assert_equal_trees(saved, saved_parts(tmp_path / "parts")[name], name)


def saved_parts(path):
    return RunDirectory.open(path).checkpoints.load().parts


def assert_equal_trees(one, other, path):
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_equal_trees(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and np.array_equal(one, other), path
    else:
        assert one == other, path


def test_a_run_directory_holds_all_that_the_contract_names(tmp_path):
    result = run(tmp_path, "run", 320)
    path = tmp_path / "run"
    for name in ("config.yaml", "command.txt", "env.json", "metrics.jsonl", "result.json"):
        assert (path / name).is_file(), name
    for name in ("tb", "logs", "checkpoints"):
        assert (path / name).is_dir(), name
    written = json.loads((path / "result.json").read_text())
    assert written["policy_sha256"] == result.policy_sha256
    assert written["stopped_by"] == "steps" and written["env_steps"] == 320
    assert {"rho", "eta", "limited_by", "eval_return_mean", "workers"} <= written.keys()


def test_a_loaded_policy_repeats_the_evaluation_of_training(tmp_path):
    result = run(tmp_path, "run", 320, eval_episodes=4)
    policy = load_policy(tmp_path / "run")
    again = evaluate_policy(policy, "CartPole-v1", 4, SMALL["seed"])
    assert again.mean == result.eval_return_mean
    obs = np.zeros((3, 4), np.float32)
    assert policy.act(obs).shape == (3,) and policy.act(obs[0]) == policy.act(obs)[0]


def test_training_stops_when_an_evaluation_is_good_enough(tmp_path):
    result = run(tmp_path, "run", 10_000, stop_at=1.0, eval_every=64)
    assert result.stopped_by == "target" and result.env_steps == 64
    best = RunDirectory.open(tmp_path / "run").best
    assert best.score() == result.eval_return_mean and best.load().step == 64


def test_a_new_run_may_start_from_the_policy_of_another(tmp_path):
    first = run(tmp_path, "first", 320)
    second = run(tmp_path, "second", 32, from_checkpoint=str(tmp_path / "first"))
    assert second.policy_sha256 == first.policy_sha256, "no update was made yet"
    assert second.train_iter == 0


def test_resuming_with_another_environment_is_refused(tmp_path):
    run(tmp_path, "run", 64)
    with pytest.raises(OptionError, match="is of dqn on CartPole-v1"):
        train("dqn", "Acrobot-v1", run_dir=str(tmp_path / "run"), resume=True, quiet=True)


def test_an_unknown_option_or_algorithm_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(OptionError, match=r"no option 'lrr'\n  why: the nearest is 'lr'"):
        train("dqn", "CartPole-v1", lrr=1)
    with pytest.raises(OptionError, match=r"no algorithm 'dqnn'\n  why: the nearest is 'dqn'"):
        train("dqnn", "CartPole-v1")


def test_paths_and_numbers_of_numpy_are_as_good_as_text_and_numbers(tmp_path):
    plain = run(tmp_path, "plain", 320)
    given = {"seed": np.int64(3), "gamma": np.float64(0.99), "hidden": np.array([16, 16])}
    found = train(
        "dqn",
        "CartPole-v1",
        env_steps=np.int32(320),
        run_dir=tmp_path / "numpy",
        **{**SMALL, **given, "quiet": np.True_},
    )
    assert found.policy_sha256 == plain.policy_sha256
    texts = [(tmp_path / name / "config.yaml").read_text() for name in ("plain", "numpy")]
    assert texts[0] == texts[1].replace("/numpy", "/plain")


def test_options_and_configuration_share_no_name():
    common = {field.name for field in fields(TrainOptions)}
    assert not common & {field.name for field in fields(DQNConfig)}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("env_steps", 0),
        ("num_envs", -1),
        ("eval_episodes", 0),
        ("eval_every", -1),
        ("seconds", 0.0),
        ("seconds", float("nan")),
        ("stop_at", float("inf")),
        ("seed", -1),
        ("resume", True),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(tmp_path, option, value):
    with pytest.raises(OptionError):
        train("dqn", "CartPole-v1", **{option: value})
    assert list(tmp_path.iterdir()) == []


TRAIN = [
    *("-m", "muster.cli.main", "train", "dqn", "CartPole-v1", "--run-dir", "run"),
    *("--env-steps", "10000000", "--eval-every", "0", "--stop-at", "1e9", "--num-envs", "2"),
    *("--train-every", "32", "--updates-per-train", "4", "--hidden", "16", "16"),
]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_ends_with_a_checkpoint_its_exit_code_and_a_run_to_resume(tmp_path, number, code):
    child = subprocess.Popen(
        [sys.executable, *TRAIN], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert b"run directory" in child.stderr.readline()
        assert b"steps" in child.stderr.readline(), "the first line of progress"
        child.send_signal(number)
        out, err = child.communicate(timeout=300)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == code, err
    assert b"stopped by signal" in out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["stopped_by"] == "signal"
    more = [*TRAIN, "--resume", "--quiet"]
    more[more.index("--env-steps") + 1] = str(result["env_steps"] + 32)
    subprocess.run([sys.executable, *more], cwd=tmp_path, check=True, timeout=300)
    resumed = json.loads((tmp_path / "run" / "result.json").read_text())
    assert resumed["env_steps"] == result["env_steps"] + 32


def test_a_signal_that_is_ignored_stays_ignored():
    stop = StopRequest()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop.listening():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert stop.signal is None
