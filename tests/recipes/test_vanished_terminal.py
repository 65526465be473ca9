"""A terminal that is closed, a pipe that nobody reads, a full device: no run is lost over it."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from muster.run import RunDirectory

WAYS = {
    "ppo-serial": ["ppo", "--workers", "0"],
    "ppo-nodes": ["ppo", "--workers", "2"],
    "dqn-serial": ["dqn", "--workers", "0"],
    "dqn-nodes": ["dqn", "--workers", "3"],
}
QUICK = ["--stop-at", "501", "--eval-every", "0", "--eval-episodes", "1", "--run-dir", "run"]


def command(way, steps):
    algo, *more = WAYS[way]
    return [
        *(sys.executable, "-m", "muster", "train", algo, "CartPole-v1"),
        *(*more, *QUICK, "--env-steps", str(steps)),
    ]


def in_a_terminal(folder, words):
    """Start a command as the foreground job of a terminal of its own; return both."""
    master, slave = pty.openpty()
    started = subprocess.Popen(
        words, cwd=folder, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    return started, master


def wait_for(master, words):
    seen = b""
    while words not in seen:
        seen += os.read(master, 4096)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way == "dqn-nodes" else pytest.mark.slow) for way in WAYS]
)
def test_a_closed_terminal_ends_the_run_well(tmp_path, way):
    run, master = in_a_terminal(tmp_path, command(way, 10_000_000))
    try:
        wait_for(master, b" steps ")
        os.close(master)  # the kernel says SIGHUP, and every write fails from now on
        assert run.wait(60) == 128 + signal.SIGHUP
    finally:
        run.kill()
        run.wait()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    last = RunDirectory.open(tmp_path / "run").checkpoints.load()
    assert (result["stopped_by"], result["stop_signal"]) == ("signal", signal.SIGHUP)
    assert last.counters["env_step"] == result["env_steps"] > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["ppo-nodes", pytest.param("dqn-serial", marks=pytest.mark.slow)])
def test_under_nohup_it_goes_on_to_its_end(tmp_path, way):
    words = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command(way, 30_000)]
    run, master = in_a_terminal(tmp_path, words)
    try:
        wait_for(master, b" steps ")
        os.close(master)
        assert run.wait(100) == 0
    finally:
        run.kill()
        run.wait()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["stopped_by"] == "steps" and result["env_steps"] >= 30_000


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("way", WAYS)
def test_every_signal_that_asks_leaves_a_checkpoint_and_its_code(tmp_path, way, number):
    run = subprocess.Popen(
        command(way, 10_000_000), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        for line in run.stderr:
            if b" steps " in line:
                break
        run.send_signal(number)
        run.stderr.read()
        assert run.wait(60) == 128 + number
    finally:
        run.kill()
        run.wait()
        run.stderr.close()
    assert RunDirectory.open(tmp_path / "run").checkpoints.load().counters["env_step"] > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["ppo-serial", pytest.param("dqn-nodes", marks=pytest.mark.slow)])
def test_a_pipe_that_nobody_reads_any_more_does_not_end_a_run(tmp_path, way):
    """As `muster train ... 2>&1 | head -1` does."""
    run = subprocess.Popen(
        command(way, 20_000), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        assert b"run directory" in run.stdout.readline()
        run.stdout.close()
        assert run.wait(100) == 0
    finally:
        run.kill()
        run.wait()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["stopped_by"] == "steps" and result["env_steps"] >= 20_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("words", [["train"], ["--help"], ["doctor"]], ids=lambda each: each[0])
def test_a_full_device_is_said_in_three_lines(tmp_path, words):
    full = command("ppo-serial", 2_048) if words == ["train"] else None
    with open("/dev/full", "wb") as device:
        done = subprocess.run(
            [*(full or [sys.executable, "-m", "muster", *words])],
            cwd=tmp_path, stdout=device, stderr=subprocess.PIPE, text=True, timeout=100,
        )  # fmt: skip
    said = done.stderr[done.stderr.index("muster: the output could not be written") :]
    assert done.returncode == 1 and len(said.splitlines()) == 3 and "Traceback" not in done.stderr
    if full:
        assert (tmp_path / "run" / "result.json").is_file()
