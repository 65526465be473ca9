"""`muster train --seeds`: one setting, several seeds, each the run that it would be alone."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import muster
from muster.cli.main import main
from muster.report.statistics import iqm

PPO = ["train", "ppo", "CartPole-v1"]
SHORT = {"env_steps": 1024, "stop_at": None, "eval_episodes": 2, "quiet": True}


@pytest.mark.timeout(120)
def test_each_seed_has_the_policy_of_a_run_alone_and_all_have_statistics(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = muster.train_seeds("ppo", "CartPole-v1", seeds=2, seed=7, run_dir="all", **SHORT)
    assert [run.seed for run in result.runs] == [7, 8]
    assert {run.status for run in result.runs} == {"finished"}
    assert result.iqm == pytest.approx(float(iqm(result.returns)))
    assert result.interval is None  # of two runs it would say nothing
    alone = muster.train("ppo", "CartPole-v1", seed=8, run_dir="alone", **SHORT)
    saved = json.loads((result.runs[1].run_dir / "result.json").read_text())
    assert saved["policy_sha256"] == alone.policy_sha256
    assert saved["eval_return_mean"] == alone.eval_return_mean == result.runs[1].eval_return
    text = result.table()
    assert max(map(len, text.splitlines())) <= 80
    assert "IQM" in text and (tmp_path / "all/table.txt").read_text() == f"{text}\n"


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["--seeds", "0"], "--seeds 0 is not possible", "--seeds 2"),
        (["--seeds", "3", "--jobs", "0"], "--jobs 0 is not possible", "--jobs 1"),
        (["--jobs", "2"], "--jobs 2 needs --seeds", "--seeds 5 --jobs 2"),
        (["--seeds", "3", "--num-envs", "0"], "--num-envs 0 is not possible", "--num-envs 1"),
        (["--seeds", "3", "--seed", "-1"], "--seed -1 is not possible", "--seed 1"),
        (["--seeds", "3", "--resume"], "--resume and --seeds contradict", "muster resume DIR"),
        (["--seeds", "3", "--run-dir", "full"], "cannot be the directory", "another --run-dir"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(words, what, fix, capsys, in_folder):
    (in_folder / "full").mkdir()
    (in_folder / "full/file").touch()
    assert main([*PPO, *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and what in said[0] and fix in said[2], said
    assert os.listdir() == ["full"] and os.listdir("full") == ["file"]


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_after_a_signal_the_runs_are_resumed_and_none_is_repeated(in_folder):
    words = ["--seeds", "3", "--jobs", "1", "--run-dir", "all", "--env-steps", "60000"]
    words += ["--checkpoint-every", "1024", "--eval-every", "0", "--eval-episodes", "2"]
    command = [sys.executable, "-m", "muster"]
    first = subprocess.Popen([*command, *PPO, *words], stdout=subprocess.PIPE, text=True)
    second = in_folder / "all/trials/001/metrics.jsonl"
    try:
        while not (second.exists() and second.stat().st_size):
            assert first.poll() is None
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        printed, _ = first.communicate(timeout=120)
    finally:
        first.kill()
    assert first.returncode == 143 and printed.splitlines()[-1].endswith("resume all")
    ended = (in_folder / "all/trials/000/result.json").stat().st_mtime_ns
    resumed = subprocess.run(
        [*command, "resume", "all"], text=True, capture_output=True, check=True
    )
    assert "IQM" in resumed.stdout and "3 seeds" in resumed.stdout
    assert (in_folder / "all/trials/000/result.json").stat().st_mtime_ns == ended
    found = [
        json.loads((in_folder / f"all/trials/00{k}/result.json").read_text()) for k in range(3)
    ]
    alone = muster.train("ppo", "CartPole-v1", seed=1, env_steps=60000, quiet=True, eval_every=0)
    assert found[1]["policy_sha256"] == alone.policy_sha256
    assert [each["seed"] for each in found] == [0, 1, 2]
