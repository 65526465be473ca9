"""`Parallel.prepare`: nodes begin with modules imported. And nodes that never come to a loop."""

import os
import subprocess
import sys
import time

import pytest

from muster import NodeError, Parallel
from muster.errors import OptionError

PROGRAM = """
import os, sys
from muster import Parallel


def main():
    return "prepared_before" in sys.modules and sys.modules["prepared_before"].PID != os.getpid()


if __name__ == "__main__":
    if "prepare" in sys.argv:
        Parallel.prepare("prepared_before")
    print(Parallel.runner(2)(main))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("word", "printed"), [("prepare", "[True, True]"), ("", "[False, False]")])
def test_nodes_begin_with_what_was_prepared_and_only_then(tmp_path, word, printed):
    (tmp_path / "prepared_before.py").write_text("import os\nPID = os.getpid()\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", word],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr


def test_an_engine_that_is_not_there_is_refused():
    with pytest.raises(OptionError, match="engine='lan'"):
        Parallel.prepare("json", engine="lan")


def die_at_birth():
    os._exit(3)


@pytest.mark.timeout(600)
def test_a_node_that_never_comes_to_its_loop_is_given_up_however_many_restarts_it_may_have():
    started = time.monotonic()
    with pytest.raises(NodeError, match="replaced 5 times"):
        Parallel.runner(1, on_failure="restart", max_restarts=100)(die_at_birth)
    assert time.monotonic() - started < 30
