"""RunDirectory: where a run goes, what is in it, and that nothing is written anywhere else."""

import json
import math
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from benchmarks.faults.scene import save_number, which

import muster
from muster.errors import OptionError
from muster.run import RunDirectory, RunDirectoryError, RunLockedError
from muster.run.lock import FileLock
from muster.run.names import safe_name


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test runs in a directory of its own, in which `runs` would appear."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def create(path=None, env_id="CartPole-v1", algo="dqn", seed=0, **options):
    return RunDirectory.create(path, env_id, algo, seed, **options)


def test_a_run_goes_under_env_algo_time_and_seed(here):
    with create(env_id="ALE/Pong-v5", seed=7) as run:
        parts = run.path.relative_to(here).parts
        assert parts[:3] == ("runs", "ALE_Pong-v5", "dqn")
        assert re.fullmatch(r"\d{8}-\d{6}-7", parts[3])
        assert run.path.stat().st_mode & 0o777 == 0o700


def test_two_runs_of_the_same_second_have_two_directories(monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form, *when: "20260101-000000")
    with create() as one, create() as two, create() as three:
        assert [run.path.name for run in (one, two, three)] == [
            "20260101-000000-0", "20260101-000000-0-2", "20260101-000000-0-3"
        ]  # fmt: skip


def test_everything_that_the_contract_names_is_there(here):
    argv = ["muster", "train", "dqn", "CartPole-v1", "--run-dir", "a b"]
    with create("my-run", argv=argv) as run:
        run.write_config({"lr": 3e-4})
        run.write_result({"algo": "dqn", "eval_return_mean": 500.0})
    assert run.path == here / "my-run"
    assert {
        "config.yaml",
        "command.txt",
        "env.json",
        "logs",
        "tb",
        "checkpoints",
        "result.json",
    } < {path.name for path in run.path.iterdir()}
    assert shlex.split((run.path / "command.txt").read_text()) == argv
    env = json.loads((run.path / "env.json").read_text())
    assert env["versions"]["muster"] == muster.__version__
    assert env["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert env["versions"]["numpy"] == np.__version__
    assert {"torch", "gymnasium"} < set(env["versions"])
    assert env["cores"] == os.cpu_count()
    assert env["memory_bytes"] > 2**28
    assert env["platform"] and "git_commit" in env
    assert RunDirectory.open("my-run").read_config() == "lr: 0.0003\n"
    assert RunDirectory.open("my-run").read_result()["eval_return_mean"] == 500.0


def test_the_commit_is_that_of_the_working_directory(here):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=b", *words], check=True, timeout=300,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    with create("before") as run:
        assert json.loads((run.path / "env.json").read_text())["git_commit"] is None
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=300)
    with create("after") as run:
        assert json.loads((run.path / "env.json").read_text())["git_commit"] == head.stdout.strip()


@pytest.mark.parametrize("content", ["config.yaml", "notes.txt", "sub/"])
def test_a_directory_with_something_in_it_is_refused(here, content):
    place = here / "taken"
    place.mkdir()
    if content.endswith("/"):
        (place / content).mkdir()
    else:
        (place / content).write_text("precious")
    before = sorted(place.rglob("*"))
    with pytest.raises(RunDirectoryError, match="is not empty"):
        create("taken")
    assert sorted(place.rglob("*")) == before


def test_an_empty_directory_and_the_rest_of_a_run_killed_at_its_birth_are_fine(here):
    (here / "empty").mkdir()
    create("empty").close()
    place = here / "killed"
    for folder in ("logs", "tb"):
        (place / folder).mkdir(parents=True)
    (place / ".lock").write_text("123\n")
    create("killed").close()


def test_a_file_in_the_way_is_said(here):
    (here / "file").write_text("")
    for path in ("file", "file/run"):
        with pytest.raises(RunDirectoryError, match="could not be created"):
            create(path)


def test_resume_goes_on_and_remembers_each_start():
    with create("run", argv=["muster", "one"]) as run:
        run.write_config({"lr": 1})
        save_number(run.checkpoints, 1)
    with RunDirectory.open("run", writable=True) as run:
        assert which(run.checkpoints) == 1
        assert run.writable
        assert (run.path / "command.txt").read_text() == "muster one\n", "nothing is noted yet"
        run.note_start(["muster", "two"])
        assert (run.path / "command.txt").read_text() == "muster one\nmuster two\n"
        assert len(json.loads((run.path / "env.json").read_text())["earlier"]) == 1
    with RunDirectory.open("run", writable=True) as run:
        run.note_start(["muster", "three"])
        earlier = json.loads((run.path / "env.json").read_text())["earlier"]
        assert len(earlier) == 2
        assert all("earlier" not in each for each in earlier)


def test_resume_finds_a_checkpoint_that_was_being_replaced():
    with create("run") as run:
        path = save_number(run.checkpoints, 1)
    path.rename(path.with_name(f".step-10.replaced-{os.getpid()}"))
    (path.parent / f".step-10.partial-{os.getpid()}").mkdir()
    with RunDirectory.open("run", writable=True) as run:
        assert which(run.checkpoints) == 1
        assert not list(path.parent.glob(".step*"))


def test_resume_without_a_run_is_not_a_fresh_start(here):
    with pytest.raises(RunDirectoryError, match="no run"):
        RunDirectory.open("missing", writable=True)
    assert list(here.iterdir()) == []


def test_a_run_is_found_by_its_directory_or_by_a_checkpoint_in_it(here):
    with create("run") as run:
        path = save_number(run.checkpoints, 1)
    for given in ("run", here / "run", here / "run" / "."):
        found = RunDirectory.open(given)
        assert (found.path, found.checkpoint, found.writable) == (run.path, None, False)
    found = RunDirectory.open(path)
    assert (found.path, found.checkpoint) == (run.path, path)
    assert RunDirectory.open("run/checkpoints/step-10/").checkpoint == path


@pytest.mark.parametrize("given", ["", "missing", "empty", "run/checkpoints", "run/tb"])
def test_what_is_no_run_is_said(here, given):
    create("run").close()
    (here / "empty").mkdir()
    with pytest.raises((RunDirectoryError, OptionError)):
        RunDirectory.open(given)


def test_who_only_reads_writes_nothing_and_needs_no_lock():
    with create("run"):
        reader = RunDirectory.open("run")
        with pytest.raises(RunDirectoryError, match="writable=True"):
            reader.write_result({})
        with pytest.raises(RunDirectoryError, match="writable=True"):
            reader.write_config({})
        for write in (
            lambda: save_number(reader.checkpoints, 1),
            lambda: reader.checkpoints.prune(),
        ):
            with pytest.raises(RunDirectoryError, match="writable=True"):
                write()
        assert reader.checkpoints.list() == []


def test_a_closed_run_is_not_written_to():
    with create("run") as run:
        pass
    with pytest.raises(RunDirectoryError, match="closed"):
        run.write_result({})


def test_a_second_writer_is_refused_with_the_pid_of_the_first():
    with create("run"):
        for second in (
            lambda: RunDirectory.open("run", writable=True),
            lambda: create("run"),
        ):
            with pytest.raises(RunLockedError, match=f"process {os.getpid()} ") as caught:
                second()
            assert caught.value.pid == os.getpid()
            assert f"on {socket.gethostname()}, since 20" in str(caught.value)
    RunDirectory.open("run", writable=True).close()


@pytest.mark.timeout(600)
def test_a_forked_worker_does_not_keep_the_lock_of_its_parent(here):
    program = """
import os, sys, time
from muster.run import RunDirectory
run = RunDirectory.create("run", "e", "a", 0)
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
os._exit(0)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        child = int(parent.stdout.readline())
        with pytest.raises(RunLockedError):
            RunDirectory.open("run", writable=True)
        parent.kill()
        parent.wait(30)
        os.kill(child, 0)  # it still lives
        RunDirectory.open("run", writable=True).close()
    finally:
        os.kill(child, 9)
        parent.kill()
        parent.wait(30)
        parent.stdout.close()


def test_a_start_that_fails_gives_the_lock_back(monkeypatch):
    from muster.run import directory

    def fail():
        raise RuntimeError("no machine")

    with monkeypatch.context() as patch:
        patch.setattr(directory, "describe_machine", fail)
        with pytest.raises(RuntimeError):
            create("run")
    create("run").close()
    with monkeypatch.context() as patch:
        patch.setattr(directory, "describe_machine", fail)
        with pytest.raises(RuntimeError), RunDirectory.open("run", writable=True) as run:
            run.note_start()
    RunDirectory.open("run", writable=True).close()


def test_the_lock_lasts_though_the_object_is_forgotten(here):
    store = create("run").checkpoints
    import gc

    gc.collect()
    with pytest.raises(RunLockedError):
        RunDirectory.open("run", writable=True)
    del store


def test_a_lock_file_of_a_dead_run_and_one_without_a_pid_do_no_harm(here):
    (here / ".lock").write_text("4194304\n")
    with FileLock(here / ".lock") as lock:
        assert (here / ".lock").read_text() == f"{os.getpid()}\n"
        (here / ".lock").write_text("nonsense")
        with pytest.raises(RunLockedError, match="another process"), FileLock(here / ".lock"):
            pass
        assert lock.held
    assert not lock.held


def test_threads_wait_for_each_other(here):
    order = []
    first = FileLock(here / ".lock")
    first.acquire()

    def work():
        with FileLock(here / ".lock", wait=30):
            order.append("second")

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    order.append("first")
    first.release()
    thread.join(30)
    assert order == ["first", "second"]


HOSTILE = [
    "../x", "../../../etc/passwd", "/etc/passwd", "a/../../b", "..", ".", "-rf", "--help", "a\nb",
    "a\0b", "x" * 300, "<script>alert(1)</script>", "~root", "$(id)", "`id`", "a;b", "C:\\x",
    ".git", "\u202e", "ü" * 200, " ", "", "con/../..", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("word", HOSTILE, ids=ascii)
@pytest.mark.parametrize("where", ["env_id", "algo"])
def test_no_name_leads_out_of_the_root(tmp_path, here, word, where):
    try:
        run = create(**{where: word})
    except OptionError:
        pass
    else:
        run.close()
        assert run.path.resolve().is_relative_to(here / "runs")
        assert len(run.path.relative_to(here / "runs").parts) == 3
        for part in run.path.relative_to(here).parts:
            assert re.fullmatch(r"[A-Za-z0-9_+=][A-Za-z0-9._+=-]{0,99}", part)
    assert {path.name for path in here.iterdir()} <= {"runs"}
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_long_names_that_differ_stay_different():
    one, two = safe_name("x" * 300 + "1"), safe_name("x" * 300 + "2")
    assert one != two
    assert len(one) == 80


@pytest.mark.parametrize(
    "path", ["", "a\0b", "a\nb", "x" * 300, "ü" * 130, "-rf", "runs/--help", "a/\x1b[31m", "a/-b/"]
)
def test_a_path_that_makes_trouble_is_refused(here, path):
    with pytest.raises(OptionError, match="cannot be a run directory"):
        create(path)
    assert list(here.iterdir()) == []


def test_the_path_that_the_user_gives_is_the_run_directory(tmp_path, here):
    for given, place in (
        (tmp_path / "absolute" / "deep", tmp_path / "absolute" / "deep"),
        ("../beside", tmp_path / "beside"),
        (Path("plain"), here / "plain"),
    ):
        with create(given) as run:
            assert run.path == place
            assert (place / "checkpoints").is_dir()


def test_links_do_not_lead_a_run_elsewhere(tmp_path, here):
    outside = tmp_path / "outside"
    outside.mkdir()
    (here / "link").symlink_to(outside)
    with pytest.raises(RunDirectoryError, match="symbolic link"):
        create("link")
    (here / "runs").mkdir()
    (here / "runs" / "CartPole-v1").symlink_to(outside)
    with pytest.raises(RunDirectoryError, match="is not inside"):
        create()
    create("run").close()
    (here / "run" / "tb").rmdir()
    (here / "run" / "tb").symlink_to(outside)
    with (
        RunDirectory.open("run", writable=True) as run,
        pytest.raises(RunDirectoryError, match="symbolic link"),
    ):
        run.note_start()
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_a_root_that_is_a_link_is_the_users_choice(tmp_path, here):
    (tmp_path / "big-disk").mkdir()
    (here / "runs").symlink_to(tmp_path / "big-disk")
    with create() as run:
        assert run.path.resolve().is_relative_to(tmp_path / "big-disk")


def test_a_result_is_valid_json_whatever_it_holds():
    @dataclass
    class Odd:
        x: int = 1

    result = {
        "mean": np.float32(1.5), "n": np.int64(3), "nan": math.nan, "list": [1, -math.inf],
        "path": Path("a"), "none": None, "deep": {"inf": np.float64("inf")}, "odd": Odd(),
    }  # fmt: skip
    with create("run") as run:
        run.write_result(result)

        def refuse(word):
            raise AssertionError(word)

        found = json.loads((run.path / "result.json").read_text(), parse_constant=refuse)
    assert (found["mean"], found["n"], found["nan"], found["list"]) == (1.5, 3, None, [1, None])
    assert found["nonfinite"] == {"nan": "nan", "list/1": "-inf", "deep/inf": "inf"}
    assert found["path"] == "a"


def test_a_result_that_cannot_be_written_leaves_the_old_one(monkeypatch):
    with create("run") as run:
        assert run.read_result() is None
        run.write_result({"a": 1})

        def fail(fd):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(RunDirectoryError, match=r"result\.json could not be written"):
            run.write_result({"a": 2})
        assert run.read_result() == {"a": 1}
        assert not [path.name for path in run.path.iterdir() if "partial" in path.name]
