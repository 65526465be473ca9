"""DQN with its replay in shards: learns, counts exactly, survives kills, stops and goes on."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest
from test_dqn_nodes import env_steps, nodes_of, processes, start, wait_until

import muster
from muster.framework.signals import STOP_SIGNALS
from muster.run import RunDirectory

LEARNER, EVALUATOR, SHARD, ACTOR = 0, 1, 2, 4
"""Nodes of a run with two shards."""
TWO = ("--workers", "5", "--replay-shards", "2")


@contextmanager
def running(folder, *options):
    """Start a run that does not outlive the test."""
    driver = start(folder, *options)
    try:
        yield driver
    finally:
        if driver.poll() is None:
            driver.terminate()
            driver.communicate(timeout=300)


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.slow
def test_replay_in_shards_learns_to_balance(tmp_path, shards):
    result = muster.train(
        "dqn",
        "CartPole-v1",
        workers=3 + shards,
        replay_shards=shards,
        eval_episodes=20,
        run_dir=str(tmp_path / "run"),
        quiet=True,
    )
    assert result.eval_return_mean >= 475
    assert (result.workers, result.stopped_by) == (3 + shards, "target")
    logs = sorted(path.name for path in (tmp_path / "run" / "logs").iterdir())
    assert logs == [f"node.{node}.log" for node in range(3 + shards)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("prioritized", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_samples_per_insert_hold_over_all_shards(tmp_path, prioritized):
    result = muster.train(
        "dqn",
        "CartPole-v1",
        workers=5,
        replay_shards=2,
        prioritized=prioritized,
        env_steps=6_000,
        stop_at=None,
        eval_every=0,
        eval_episodes=1,
        run_dir=str(tmp_path / "run"),
        quiet=True,
    )
    asked = 64 * 64 / 64  # batch size * updates / environment steps, of the preset
    drawn = result.train_iter * 64 / (result.env_steps - 1_000)
    assert drawn == pytest.approx(asked, rel=0.03)
    lags = [line for line in lines_of(tmp_path / "run") if "lag/max" in line]
    assert lags and all(line["lag/min"] <= line["lag/mean"] <= line["lag/max"] for line in lags)
    # What is saved is what was counted: the learner's steps are those that the shards have stored.
    saved = RunDirectory.open(tmp_path / "run").checkpoints.load()
    shards = saved.parts["replay"]["shards"]
    assert sum(shard["inserted"] for shard in shards) == result.env_steps
    assert all(shard["inserted"] > 0.4 * result.env_steps for shard in shards)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "victim",
    [
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param(LEARNER, marks=pytest.mark.slow),
        SHARD,
        pytest.param(ACTOR, marks=pytest.mark.slow),
    ],
)
def test_a_killed_node_is_replaced_and_training_goes_on(tmp_path, victim):
    limits = ("--env-steps", "12000", "--stop-at", "1000", "--checkpoint-every", "2000")
    run = tmp_path / "run"
    with running(tmp_path, *TWO, *limits, "--eval-episodes", "5") as driver:
        wait_until(lambda: env_steps(run) > 4_000)
        pids = nodes_of(driver)
        assert len(pids) == 5
        if victim is not None:
            os.kill(pids[victim], signal.SIGKILL)
            wait_until(lambda: pids[victim] not in processes())
        out, _ = driver.communicate(timeout=100)
    assert driver.returncode == 0, out
    assert not set(pids) & processes().keys()
    result = json.loads((run / "result.json").read_text())
    assert result["env_steps"] >= 12_000 and result["eval_return_mean"] is not None
    steps = [line["env_step"] for line in lines_of(run) if "train/loss" in line]
    assert steps == sorted(steps)
    # Of every step that was counted a shard has stored it, or has died with it.
    shards = RunDirectory.open(run).checkpoints.load().parts["replay"]["shards"]
    stored = sum(shard["inserted"] for shard in shards)
    gone = result["env_steps"] - stored
    if victim == SHARD:
        assert 1_000 < gone < 7_000
    else:  # a learner goes on with the replay of its last checkpoint
        assert gone == 0


def signalled(folder, number, *options):
    """Run with two shards until a signal ends it; return what is in its checkpoint."""
    run = folder / "run"
    with running(folder, *TWO, *options, "--env-steps", "400000", "--stop-at", "1000") as driver:
        wait_until(lambda: env_steps(run) > 1_500)
        nodes = nodes_of(driver)
        driver.send_signal(number)
        out, _ = driver.communicate(timeout=300)
    assert driver.returncode == 128 + number, out
    assert "has no replay" not in out
    assert not set(nodes) & processes().keys()
    return RunDirectory.open(run).checkpoints.load()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.slow) for n in STOP_SIGNALS[1:])],
)
def test_a_signal_saves_what_all_shards_hold(tmp_path, number, engine):
    saved = signalled(tmp_path, number, "--engine", engine)
    shards = saved.parts["replay"]["shards"]
    assert len(shards) == 2 and all(shard["inserted"] > 500 for shard in shards)
    # Every step that was counted is there, and no other.
    assert sum(shard["inserted"] for shard in shards) == saved.counters["env_step"] > 1_500


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_resumed_run_begins_with_what_the_shards_of_the_signalled_one_held(tmp_path):
    run = tmp_path / "run"
    saved = signalled(tmp_path, signal.SIGTERM)
    more = saved.counters["env_step"] + 3_000
    options = ("--resume", "--env-steps", str(more), "--stop-at", "1000", "--eval-episodes", "5")
    with running(tmp_path, *TWO, *options) as second:
        out, _ = second.communicate(timeout=100)
    assert second.returncode == 0, out
    assert json.loads((run / "result.json").read_text())["env_steps"] >= more
    again = RunDirectory.open(run).checkpoints.load()
    shards = again.parts["replay"]["shards"]
    assert sum(shard["inserted"] for shard in shards) == again.counters["env_step"] >= more
    # What is in the checkpoint fits no other number of shards.
    with running(tmp_path, *options, "--workers", "4", "--replay-shards", "1") as third:
        out, _ = third.communicate(timeout=300)
    assert third.returncode == 2 and "has --replay-shards 2" in out, out


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_second_signal_ends_a_run_whose_shards_do_not_answer(tmp_path):
    run = tmp_path / "run"
    with running(tmp_path, *TWO, "--env-steps", "400000", "--stop-at", "1000") as driver:
        wait_until(lambda: env_steps(run) > 1_000, 100.0)
        nodes = nodes_of(driver)
        os.kill(nodes[SHARD], signal.SIGSTOP)
        driver.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(timeout=3.0)  # the learner waits for that shard
        started = time.monotonic()
        driver.send_signal(signal.SIGINT)
        out, _ = driver.communicate(timeout=300)
    assert time.monotonic() - started < 10.0
    assert driver.returncode in (128 + signal.SIGINT, -signal.SIGINT), out
    assert not set(nodes) & processes().keys()


@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({"replay_shards": 1}, "workers=0 and replay_shards=1", "workers=4"),
        ({"replay_shards": 2, "workers": 4}, "workers=4 and replay_shards=2", "workers=5"),
        ({"replay_shards": 65, "workers": 70}, "replay_shards=65", "replay_shards=1"),
        ({"replay_shards": -1}, "replay_shards=-1", "replay_shards=1"),
        (
            {"replay_shards": 16, "workers": 19, "buffer_size": 160, "learning_starts": 100},
            "replay_shards=16 and buffer_size=160",
            "replay_shards=1",
        ),
        (
            {"replay_shards": 2, "workers": 5, "buffer_size": 1_016, "learning_starts": 1_012},
            "learning_starts=1012 and buffer_size=1016",
            "buffer_size=10120",
        ),
    ],
)
def test_shards_without_sense_are_refused(options, what, fix):
    with pytest.raises(muster.OptionError) as caught:
        muster.train("dqn", "CartPole-v1", **options)
    assert str(caught.value).startswith(what) and str(caught.value).endswith(fix)
