"""A signal while nodes are being started ends the command: nobody notes it and goes on."""

import os
import signal
import subprocess
import sys
import time

import pytest

FOREVER = ["--env-steps", "100000000", "--stop-at", "1000", "--eval-every", "0"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("engine", "seconds"),
    [
        ("local", 0.0),
        *(pytest.param("ray", after, marks=pytest.mark.slow) for after in (0.0, 1.0, 2.0, 4.0)),
    ],
)
def test_it_is_not_forgotten(tmp_path, engine, seconds, number):
    command = [sys.executable, "-u", "-m", "muster", "train", "ppo", "CartPole-v1"]
    command += ["--workers", "2", "--engine", engine, "--run-dir", "run", *FOREVER]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": "/tmp"},
    ) as run:
        try:
            assert "run directory: " in run.stdout.readline()
            time.sleep(seconds)  # how far it has come by then differs from machine to machine
            run.send_signal(number)
            said, _ = run.communicate(timeout=300)
        finally:
            run.kill()
    assert run.returncode in (128 + number, -number), said
    assert "Traceback" not in said
