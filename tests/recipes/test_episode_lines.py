"""Every training episode counts in exactly one line of metrics.jsonl, whatever happens meanwhile.

The steps of all episodes in the lines, and of those that run at the end, are the steps of the run.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

import muster
from muster.run import RunDirectory

PPO = {"num_envs": 8, "rollout": 32, "minibatches": 4, "epochs": 1}
QUICK = {"stop_at": None, "eval_episodes": 1, "quiet": True}


def counted_and_running(place):
    """Return the steps of the episodes that were written, and of those that have not ended."""
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    told = [line for line in lines if "collect/episodes" in line]
    counted = sum(line["collect/episodes"] * line["collect/length"] for line in told)
    parts = RunDirectory.open(place).checkpoints.load().parts
    where = parts["rollouts"] if "rollouts" in parts else parts["collector"]
    steps = [line["env_step"] for line in lines]
    assert steps == sorted(set(steps)), "no step has two lines"
    return counted, int(where["envs"]["lengths"].sum()), lines


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("every", [0, 512, 700])
def test_ppo_writes_every_episode_once(tmp_path, workers, every):
    options = {**PPO, **QUICK, "workers": workers, "eval_every": every, "checkpoint_every": every}
    result = muster.train(
        "ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), env_steps=8_000, **options
    )
    counted, running, lines = counted_and_running(tmp_path / "run")
    assert counted + running == pytest.approx(result.env_steps)
    assert all("collect/return_100" in line for line in lines[1:])


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_resumed_run_writes_the_same_lines(tmp_path, algo):
    own = PPO if algo == "ppo" else {"num_envs": 4, "train_every": 32, "learning_starts": 64}
    options = {**own, **QUICK, "workers": 0, "checkpoint_every": 1_024, "eval_every": 1_500}
    muster.train(algo, "CartPole-v1", run_dir=str(tmp_path / "a"), env_steps=4_096, **options)
    muster.resume(tmp_path / "a", env_steps=8_192, quiet=True)
    muster.train(algo, "CartPole-v1", run_dir=str(tmp_path / "b"), env_steps=8_192, **options)
    counted, running, lines = counted_and_running(tmp_path / "a")
    assert counted + running == pytest.approx(8_192)
    *_, whole = counted_and_running(tmp_path / "b")
    extra = ("seconds", "eval/return")  # the first half ends with an evaluation of its own
    plain = [{k: v for k, v in line.items() if k not in extra} for line in lines]
    assert plain == [{k: v for k, v in line.items() if k not in extra} for line in whole]


@pytest.mark.timeout(600)
def test_a_first_worker_that_is_killed_takes_no_episode_along(tmp_path):
    command = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1"]
    command += ["--run-dir", "run", "--workers", "2", "--env-steps", "120000", "--stop-at", "501"]
    command += ["--eval-episodes", "1", "--eval-every", "20000", "--checkpoint-every", "10000"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    replaced = 0
    try:
        for line in run.stderr:  # the bar of the first worker, or that it was replaced
            if line.startswith("[node 0]") and " steps " in line and replaced < 3:
                victim = first_worker(run.pid)
                if victim is not None:
                    os.kill(victim, signal.SIGKILL)
                    replaced += 1
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.wait()
        run.stderr.close()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["replacements"] == replaced > 0
    counted, running, _ = counted_and_running(tmp_path / "run")
    assert counted + running == pytest.approx(result["env_steps"])


def first_worker(driver):
    """Return the process of node 0: the one whose line of progress was just read is the oldest."""
    found = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,lstart=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in found.stdout.splitlines()]
    servers = {pid for pid, parent, _ in rows if parent == str(driver)}
    nodes = sorted(int(pid) for pid, parent, _ in rows if parent in servers)
    return nodes[0] if nodes else None
