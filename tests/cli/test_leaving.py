"""What Ctrl-C and SIGTERM do to a command while no run listens to them."""

import signal
import subprocess
import sys

import pytest

WAITS = """
import signal, sys
from muster.cli.leaving import leave_at_once_on_signals
leave_at_once_on_signals()
print("ready", flush=True)
try:
    signal.pause()
except BaseException:
    print("swallowed", flush=True)
finally:
    print("tidied up", flush=True)
"""


def start(program, before=""):
    return subprocess.Popen(
        [sys.executable, "-c", before + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_process_whatever_the_code_in_progress_catches(number, code):
    with start(WAITS) as child:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (code, b"", b"")


@pytest.mark.timeout(30)
def test_what_is_ignored_stays_ignored():
    before = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with start(WAITS, before) as child:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=20)
    assert child.returncode == 143


def test_importing_the_command_loads_nothing_that_takes_time():
    program = "import sys, muster.cli.main; print(sorted(n for n in sys.modules if 'muster' in n))"
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True
    ).stdout
    assert "muster.framework" not in shown and "muster.cli.leaving" in shown


def test_next_to_nothing_is_loaded_before_the_command_hears_ctrl_c():
    program = (
        "import sys, importlib; before = {*sys.modules}; "
        "import muster.__main__; print(*sorted({*sys.modules} - before))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    names = ["", ".__main__", ".lazy", ".version"]
    assert shown.stdout.split() == [f"muster{name}" for name in names]


INTERRUPTED = """
import importlib.abc, os, runpy, signal, sys

class Interrupted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
runpy.run_module("muster", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "code"), [("muster.cli.leaving", -signal.SIGINT), ("muster.errors", 130)]
)
def test_ctrl_c_while_the_command_itself_is_loaded_is_no_traceback(module, code):
    command = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
