"""Runs are found and read, whatever lies in their directories."""

import json
import os
import subprocess
import sys

import pytest
from made_runs import make_run

from muster import OptionError
from muster.report.runs import find_runs, read_run
from muster.run import RunDirectory, RunDirectoryError


def test_a_run_says_what_it_is_and_how_it_went(tmp_path):
    run = read_run(make_run(tmp_path / "a", algo="dqn", seed=3, lr=0.01))
    assert (run.algo, run.env, run.seed, run.status) == ("dqn", "CartPole-v1", 3, "finished")
    assert (run.env_steps, run.seconds, run.stopped_by) == (3000, 6.0, "steps")
    assert (run.best_return, run.final_return) == (100.0, 90.0)
    assert run.options == {"lr": 0.01, "hidden": [64, 64]} and run.problems == ()
    assert run.commands() == ["muster train dqn CartPole-v1 --seed 3"]
    assert list(run.curves().metrics["eval/return"].value) == [20.0, 100.0, 90.0]


@pytest.mark.parametrize("status", ["finished", "stopped", "failed"])
def test_a_run_that_nobody_works_on_ended_in_one_of_three_ways(status, tmp_path):
    run = read_run(make_run(tmp_path / "a", status=status))
    assert run.status == status
    assert (run.env_steps, run.final_return) == (3000, 90.0)  # from the metrics, if need be


def test_a_run_that_a_process_has_claimed_is_running(tmp_path):
    make_run(tmp_path / "a", status="failed")
    with RunDirectory.open(tmp_path / "a", writable=True):
        run = read_run(tmp_path / "a")
        assert run.status == "running" and run.writer.pid == os.getpid()
        names = sorted(os.listdir(tmp_path / "a"))
        read_run(tmp_path / "a")
        assert sorted(os.listdir(tmp_path / "a")) == names  # looking leaves nothing behind
    assert read_run(tmp_path / "a").status == "failed"


def test_a_run_whose_writer_was_killed_has_failed(tmp_path):
    make_run(tmp_path / "a", status="failed")
    code = (
        "import os, signal, sys\nfrom muster.run import RunDirectory\n"
        "run = RunDirectory.open(sys.argv[1], writable=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "a"], timeout=60)
    assert (tmp_path / "a" / ".writer.json").exists()
    assert read_run(tmp_path / "a").status == "failed"


def test_runs_are_found_at_any_depth_and_the_newest_is_last(tmp_path):
    make_run(tmp_path / "x" / "y" / "new", started="2026-03-01T00:00:00+0000")
    make_run(tmp_path / "z-old", started="2025-12-31T23:59:59+0000")
    make_run(tmp_path / "x" / "same-day", started="2026-03-01T00:30:00+0100")
    (tmp_path / "nothing").mkdir()
    assert [run.path.name for run in find_runs(tmp_path)] == ["z-old", "same-day", "new"]
    assert [run.path.name for run in find_runs(tmp_path / "z-old", tmp_path / "x" / "y")] == [
        "z-old",
        "new",
    ]


def test_a_run_that_is_named_twice_is_there_once(tmp_path):
    run = make_run(tmp_path / "a")
    (tmp_path / "link").symlink_to(run)
    assert len(find_runs(run, tmp_path, tmp_path / "link")) == 1


def test_links_that_lead_elsewhere_or_in_a_circle_are_not_followed(tmp_path):
    make_run(tmp_path / "x" / "a")
    make_run(tmp_path / "elsewhere" / "b")
    (tmp_path / "x" / "round").symlink_to(tmp_path)
    assert [run.path.name for run in find_runs(tmp_path / "x")] == ["a"]


DAMAGE = {
    "empty": b"",
    "cut": b'{"algo": "pp',
    "binary": bytes(range(256)) * 40,
    "a list": b"[1, 2]",
    "deep": b"[" * 100_000,
    "huge numbers": b'{"env_step": 1e999, "eval_return_mean": '
    + b"9" * 400
    + b', "seed": 1e400}\n',
    "wrong types": b'{"algo": [1], "env": {"a": 1}, "seed": "x", "stopped_by": 3}',
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94.",
    "yaml code": b"a: !!python/object/apply:os.system ['touch canary']\n",
}


@pytest.mark.parametrize("name", ["config.yaml", "result.json", "env.json", "metrics.jsonl"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_or_passed_over_and_the_rest_is_read(
    name, damage, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a")
    (tmp_path / "a" / name).write_bytes(DAMAGE[damage])
    (run,) = find_runs(tmp_path)
    json.dumps(run.as_json(), allow_nan=False)
    assert run.commands() and run.curves() is not None
    assert run.env == "CartPole-v1" or damage in ("wrong types",)
    assert not (tmp_path / "canary").exists()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["config.yaml", "result.json", "env.json", "metrics.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "huge"])
def test_a_pipe_a_link_a_folder_or_a_huge_file_is_not_read(name, kind, tmp_path):
    path = make_run(tmp_path / "a") / name
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_text('algo: secret\n{"algo": "secret"}')
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(secret)
    elif kind == "folder":
        path.mkdir()
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)  # without blocks: it takes no room on the disk
    (run,) = find_runs(tmp_path)
    assert run.problems and name in run.problems[0]
    assert "secret" not in json.dumps(run.as_json())
    assert run.curves() is not None


def test_what_is_no_run_is_said_with_the_nearest_name(tmp_path):
    make_run(tmp_path / "first" / "a")
    with pytest.raises(OptionError, match=r"(?s)no run in .*firsst.*try: .*first"):
        find_runs(tmp_path / "firsst")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match="no folder below it has a config"):
        find_runs(tmp_path / "empty")
    with pytest.raises(RunDirectoryError, match="there is no run"):
        read_run(tmp_path / "empty")


def test_reading_runs_loads_no_torch():
    code = "import sys, muster; muster.runs, muster.compare; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"
