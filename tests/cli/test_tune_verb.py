"""`muster tune`: bad input gets three lines and code 2, and nothing is started."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from muster.cli.main import main

PPO = ["tune", "ppo", "CartPole-v1"]


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (
            [],
            "muster tune needs an algorithm and an environment",
            "muster tune ppo CartPole-v1 --grid",
        ),
        (["ppo"], "muster tune ppo needs an environment", "muster tune ppo CartPole-v1"),
        (["pp0", "CartPole-v1"], "there is no algorithm 'pp0'", "muster tune ppo CartPole-v1"),
        (["ppo", "CartPole-v9", "--grid", "lr=1"], "No environment 'CartPole-v9'", "CartPole-v1"),
        (["--resume", "nowhere"], "there is no study in nowhere", "muster tune --resume tunes/"),
    ],
)
def test_a_study_that_cannot_be_is_refused(words, what, fix, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *words]) == 2
    _three_lines(capsys, what, fix)
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["--grid", "lrr=0.1"], "'lrr', which is not an option of ppo", "--grid lr=0.01,0.001"),
        (["--grid", "gama=0.9"], "the grid has 'gama'", "--grid gamma=..."),
        (["--grid"], "the grid is empty", "--grid lr=0.01,0.001"),
        (["--grid", "lr="], "which is not an option with values", "--grid lr=0.01,0.001"),
        (["--grid", "lr=fast"], "the grid has 'fast' for lr", "--help"),
        (["--grid", "epochs=1.5"], "the grid has '1.5' for epochs", "--help"),
        (["--grid", "lr=0.1", "lr=0.2"], "the grid has lr twice", "--grid lr=0.1,0.2"),
        (["--grid", "lr=0.1:0.2"], "the grid has a range", "--space lr=0.1:0.2 --search random"),
        (["--grid", "seed=1,2"], "seed cannot be in the grid", "seeds are the study's own"),
        (["--grid", "lr=0.1,0"], "a trial with lr 0.0 is not possible", "lr="),
        (["--grid", "lr=0.1", "--search", "tpe"], "contradict each other", "--space"),
        (["--grid", "lr=0.1", "--space", "lr=0.1:1"], "contradict each other", "--grid"),
        (["--grid", "lr=0.1", "--trials", "3"], "--grid and --trials contradict", "leave out"),
        (["--grid", "lr=0.1", "--lr", "3"], "lr is fixed and tried", "leave out --lr"),
        (["--space", "lr=2:1"], "the space has '2:1' for lr", "--help"),
        (["--space", "lr=log:0:1"], "the space has 'log:0:1' for lr", "--help"),
        (["--search", "random"], "has nothing to try", "--space lr=log:1e-5:1e-2"),
        (["--search", "bayes"], "--search bayes is not possible", "muster tune ppo"),
        (["--grid", "lr=0.1", "--jobs", "0"], "--jobs 0 is not possible", "--jobs 1"),
        (["--grid", "lr=0.1", "--num-envs", "0"], "--num-envs 0 is not possible", "--num-envs 1"),
        (["--grid", "lr=0.1", "--run-dir", "x"], "--run-dir is not possible", "--out x"),
        (["--grids", "lr=0.1"], "there is no option --grids", "--grid"),
    ],
)
def test_a_grid_or_option_that_cannot_be_is_refused(
    words, what, fix, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*PPO, *words]) == 2
    _three_lines(capsys, what, fix)
    assert os.listdir() == []


def test_a_directory_with_files_is_no_place_for_a_study(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert main([*PPO, "--grid", "lr=0.1", "--out", "."]) == 2
    _three_lines(capsys, "cannot be the directory of a study", "another --out")
    assert os.listdir() == ["notes.txt"]


@pytest.mark.parametrize("words", [["--help"], ["ppo", "CartPole-v1", "--help"]])
def test_help_fits_eighty_columns(words):
    done = subprocess.run(
        [sys.executable, "-m", "muster", "tune", *words],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "--grid" in done.stdout and "--resume" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.timeout(300)
def test_sigterm_lets_the_trials_of_a_study_save(tmp_path):
    words = ["--grid", "lr=0.001,0.01", "--env-steps", "2000000", "--confirm", "0"]
    words += ["--checkpoint-every", "256", "--eval-every", "0", "--eval-episodes", "2"]
    words += ["--jobs", "1", "--out", "s"]
    study = subprocess.Popen(
        [sys.executable, "-m", "muster", *PPO, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        metrics = tmp_path / "s/trials/000/metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            assert study.poll() is None
            time.sleep(0.05)
        study.send_signal(signal.SIGTERM)
        printed, said = study.communicate(timeout=120)
    finally:
        study.kill()
    assert study.returncode == 143 and "Traceback" not in said
    assert printed.splitlines()[-1].endswith("tune --resume s")
    saved = json.loads((tmp_path / "s/trials/000/result.json").read_text())
    assert saved["stopped_by"] == "signal" and saved["env_steps"] > 0
    trials = json.loads((tmp_path / "s/study.json").read_text())["trials"]
    assert [trial["status"] for trial in trials] == ["running", "waiting"]


def _three_lines(capsys, what, fix):
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and what in said[0] and fix in said[2], said
