"""A fault harness that is killed takes the command of its trial along."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process_watch import descendants, eventually

ROOT = Path(__file__).parents[2]
FAULTS = sorted((ROOT / "benchmarks" / "faults").glob("*.py"))
ENDS_BY_ITSELF = {"node_misuse.py", "ray_heads.py"}
"""Whose children are `true`, and Ray's servers in a machine that ends with the harness."""


@pytest.mark.parametrize(
    "words",
    [
        ("whole_runs", "--only", "ppo-serial", "--count", "1"),
        pytest.param(
            ("ctrl_c", "--only", "bench", "--step", "30", "--first", "30"), marks=pytest.mark.slow
        ),
    ],
    ids=lambda words: words[0],
)
def test_a_command_does_not_outlive_its_harness(tmp_path, words):
    name, *options = words
    command = [sys.executable, "-m", f"benchmarks.faults.{name}", *options]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "TMPDIR": str(tmp_path)}
    harness = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        started = []

        def is_there():
            found = descendants(harness.pid).items()
            started[:] = [pid for pid, words in found if "-m muster" in words]
            return started

        assert eventually(is_there, 60.0)
    finally:
        harness.kill()
        harness.wait()
    gone = eventually(lambda: not any(map(is_alive, started)), 5.0)
    for pid in filter(is_alive, started):
        os.kill(pid, signal.SIGKILL)
    assert gone


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_every_harness_has_its_children_end_with_it(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    starts = [each for each in calls if ast.unparse(each.func) == "subprocess.Popen"]
    if path.name not in ENDS_BY_ITSELF:
        assert all("preexec_fn" in {word.arg for word in each.keywords} for each in starts)
