import json
import subprocess
import sys
from pathlib import Path

import pytest

from muster.tuning import process

PRETEND = (sys.executable, str(Path(__file__).parent / "pretend_train.py"))


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """Let trials only pretend to train; call it to say what some of them do besides."""
    monkeypatch.setattr(process, "COMMAND", PRETEND)
    monkeypatch.chdir(tmp_path)

    def say(**told):
        names = {name.replace("_", "/", 1).replace("_", "-"): what for name, what in told.items()}
        monkeypatch.setenv("PRETEND", json.dumps(names))

    say()
    return say


@pytest.fixture
def study_process(pretend):
    """Run `muster tune` with pretended trials in a process of its own."""

    def run(*words):
        code = (
            "import sys\n"
            "from muster.tuning import process\n"
            f"process.COMMAND = {PRETEND!r}\n"
            "from muster.cli.main import main\n"
            "raise SystemExit(main())"
        )
        return subprocess.run(
            [sys.executable, "-c", code, "tune", *words],
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
