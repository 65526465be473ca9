"""DQN on several nodes: learns, survives kills, stops on signals, goes on where it was."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import muster
from muster.run import RunDirectory

LEARNER, EVALUATOR, ACTOR = 0, 1, 2


def start(folder, *options, algo="dqn", workers=4):
    """Start `muster train dqn CartPole-v1`, or another algorithm, on four nodes."""
    command = [sys.executable, "-m", "muster.cli.main", "train", algo, "CartPole-v1"]
    command += ["--workers", str(workers), "--run-dir", "run", *options]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_until(condition, seconds=300.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)
    return found


def env_steps(run):
    """Return the environment steps of the newest line of metrics."""
    try:
        *_, line = (run / "metrics.jsonl").read_text().splitlines()
        return json.loads(line)["env_step"]
    except (OSError, ValueError, KeyError):
        return 0


def processes():
    """Return the parent of every live process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                found[int(entry.name)] = int(parent)
    return found


def nodes_of(driver):
    """Return the nodes' processes in the order of their start: each is forked by the server."""
    parents = processes()
    servers = {pid for pid, parent in parents.items() if parent == driver.pid}
    return sorted(pid for pid, parent in parents.items() if parent in servers)


def kill_and_finish(driver, run, role, after):
    """Kill a node when the run has made so many steps; return the result when it is over."""
    wait_until(lambda: env_steps(run) > after)
    victim = nodes_of(driver)[role]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in processes())
    out, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, out
    return json.loads((run / "result.json").read_text())


@pytest.mark.timeout(600)
def test_three_nodes_learn_to_balance(tmp_path):
    result = muster.train(
        "dqn", "CartPole-v1", workers=3, run_dir=str(tmp_path / "run"), quiet=True
    )
    assert result.eval_return_mean >= 475 and result.eval_episodes == 100
    assert (result.workers, result.stopped_by) == (3, "target")
    # What was evaluated is what is kept.
    policy = muster.load_policy(tmp_path / "run")
    again = muster.workers.evaluate_policy(policy, "CartPole-v1", 100, result.seed)
    assert again.mean == result.eval_return_mean
    logs = sorted(path.name for path in (tmp_path / "run" / "logs").iterdir())
    assert logs == ["node.0.log", "node.1.log", "node.2.log"]


@pytest.mark.timeout(600)
def test_as_many_samples_are_drawn_for_each_insert_as_was_asked_for(tmp_path):
    options = {"env_steps": 12_000, "stop_at": None, "eval_every": 0, "eval_episodes": 1}
    result = muster.train(
        "dqn", "CartPole-v1", workers=3, run_dir=str(tmp_path / "run"), quiet=True, **options
    )
    asked = 64 * 64 / 64  # batch size * updates / environment steps, of the preset
    drawn = result.train_iter * 64 / (result.env_steps - 1_000)
    assert drawn == pytest.approx(asked, rel=0.02)
    lags = [
        json.loads(line).get("metrics", json.loads(line)).get("lag/max")
        for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert any(lag is not None for lag in lags)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_seconds_of_a_run_do_not_begin_anew_with_a_new_learner(tmp_path):
    driver = start(tmp_path, "--seconds", "12", "--env-steps", "100000000", "--stop-at", "1000")
    run = tmp_path / "run"
    wait_until(lambda: env_steps(run) > 1_000)
    began, first_life = time.time(), 5.0
    wait_until(lambda: time.time() - began > first_life)
    os.kill(nodes_of(driver)[LEARNER], signal.SIGKILL)
    out, _ = driver.communicate(timeout=100)
    assert driver.returncode == 0 and "was replaced" in out, out
    result = json.loads((run / "result.json").read_text())
    since = (run / "result.json").stat().st_mtime - began
    assert result["stopped_by"] == "time"
    assert since - result["seconds"] < first_life / 2, "its first life is not counted"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "role",
    [
        LEARNER,
        pytest.param(EVALUATOR, marks=pytest.mark.slow),
        pytest.param(ACTOR, marks=pytest.mark.slow),
    ],
)
def test_a_killed_node_is_replaced_and_training_goes_on(tmp_path, role):
    limits = ("--env-steps", "30000", "--stop-at", "1000", "--checkpoint-every", "2000")
    driver = start(tmp_path, *limits, "--eval-episodes", "10")
    run = tmp_path / "run"
    result = kill_and_finish(driver, run, role, after=4_000)
    assert result["env_steps"] >= 30_000 and result["eval_return_mean"] is not None
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # An evaluation has the step of the weights that it is about: each metric rises by itself.
    for name in ("train/loss", "eval/return"):
        steps = [line["env_step"] for line in lines if name in line]
        assert steps and steps == sorted(steps)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_a_signal_saves_and_the_run_goes_on_from_there(tmp_path, number):
    driver = start(tmp_path, "--env-steps", "400000", "--stop-at", "1000")
    run = tmp_path / "run"
    wait_until(lambda: env_steps(run) > 3_000)
    nodes = nodes_of(driver)
    driver.send_signal(number)
    out, _ = driver.communicate(timeout=300)
    assert driver.returncode == 128 + number, out
    assert not set(nodes) & processes().keys()
    saved = RunDirectory.open(run).checkpoints.load()
    assert saved.counters["env_step"] > 3_000
    assert "stopped by signal" in out
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["play", "resume"]

    more = saved.counters["env_step"] + 2_000
    for workers in ("3", "0"):  # on other nodes, and then in one process
        again = ("--resume", "--env-steps", str(more), "--workers", workers, "--eval-episodes", "5")
        second = start(tmp_path, *again, "--stop-at", "1000")
        out, _ = second.communicate(timeout=300)
        assert second.returncode == 0, out
        assert json.loads((run / "result.json").read_text())["env_steps"] >= more
        more += 2_000


def test_two_workers_are_refused_with_what_to_do():
    with pytest.raises(muster.OptionError, match="workers=3"):
        muster.train("dqn", "CartPole-v1", workers=2)
