"""What Ctrl-C and SIGTERM do to a command while no run listens to them."""

import os
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


VERB = """
import subprocess, sys, threading, time
import muster.__main__, muster.cli.main
{does}
class verb:
    @staticmethod
    def main(argv):
        does()
        print("done", flush=True)
        return 7
sys.modules["muster.cli.algos"] = verb
sys.argv[1:] = ["algos"]
sys.exit(muster.__main__.main())
"""


def command_that(does):
    return subprocess.run(
        [sys.executable, "-c", VERB.format(does=does)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_thread_of_the_users_does_not_keep_a_command_from_ending():
    done = command_that(
        "import muster.cli.leaving as leaving; leaving._GRACE_SECONDS = 0.5\n"
        "does = threading.Thread(target=time.sleep, args=(1000,), name='viewer').start"
    )
    assert (done.returncode, done.stdout) == (7, "done\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("muster: the command was ended") and "'viewer'" in line


def test_a_command_without_such_a_thread_ends_at_once_and_says_nothing():
    done = command_that("def does(): threading.Thread(target=time.sleep, args=(0.1,)).start()")
    assert (done.returncode, done.stdout, done.stderr) == (7, "done\n", "")


def test_a_detached_process_that_a_command_leaves_behind_is_named(tmp_path):
    # A process of its own session, whose parent ends at once: nobody but the command has it.
    parent = (
        "import subprocess, sys; print(subprocess.Popen(['sleep', '1000'], "
        "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    done = command_that(
        f"def does(): subprocess.run([sys.executable, '-c', {parent!r}], check=True)"
    )
    pid, said = done.stdout.split()
    try:
        assert (done.returncode, said) == (7, "done")
        assert done.stderr == (
            f"muster: processes started here are still running: {pid} (sleep 1000)\n"
        )
    finally:
        os.kill(int(pid), signal.SIGKILL)


def test_a_warning_of_musters_own_is_one_line():
    done = command_that(
        "def does():\n"
        "    import warnings\n"
        "    from muster.errors import MusterWarning\n"
        "    warnings.warn('it is so', MusterWarning)\n"
        "    warnings.warn('theirs')"
    )
    first, *rest = done.stderr.splitlines()
    assert first == "muster: it is so" and "UserWarning: theirs" in rest[0]
