"""Real signals to a real program that runs nodes."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from process_watch import descendants, eventually

from muster.framework.signals import STOP_SIGNALS

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
    import os, sys, time
    from pathlib import Path
    from muster import Parallel, Task

    place, how, engine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def main():
        with Task() as task:
            me = task.router.node_id

            def work(ctx):
                if ctx.total_step == 5:
                    (place / f"ready.{me}.{os.getpid()}").touch()
                    while how == "spins" and me == 1:
                        pass
                    while how == "sleeps":
                        time.sleep(0.05)
                time.sleep(0.002)
                yield
                if ctx.finish:
                    (place / f"saved.{me}").touch()

            task.use(work)
            task.on("exit", lambda: (place / f"exit.{me}").touch())
            task.run()

    if __name__ == "__main__":
        Parallel.runner(2, engine=engine, grace=20.0)(main)
        (place / "returned").touch()
    """

ONE_IS_ASKED = """
    import os, sys, time
    from pathlib import Path
    from muster import Parallel, Task
    from muster.flow import Channel, gathering

    place, end, engine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def main():
        with Task() as task:
            me = task.router.node_id
            questions = Channel("questions", home="role.helper")
            answers = Channel("answers", home="role.learner")

            def learn(ctx):
                if ctx.total_step == 5:
                    (place / f"ready.{me}.{os.getpid()}").touch()
                time.sleep(0.002)
                yield
                if ctx.finish:
                    with gathering():
                        questions.put("what do you hold?")
                        (place / f"saved.{answers.get()}").touch()

            def help(ctx):
                if ctx.total_step == 5:
                    (place / f"ready.{me}.{os.getpid()}").touch()
                if len(questions):
                    questions.get()
                    answers.put("all of it")
                time.sleep(0.002)
                yield
                if ctx.finish:
                    (place / "helped").touch()

            task.use(learn, filter_labels=["role.learner"])
            task.use(help, filter_labels=["role.helper"])
            task.run(end=end)

    if __name__ == "__main__":
        roles = {"learner": 1, "helper": 1}
        Parallel.runner(2, engine=engine, roles=roles, grace=20.0, on_signal="learner")(main)
    """


@pytest.fixture
def start(engine, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    children = []

    def _start(how, program=PROGRAM):
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        child = subprocess.Popen(
            [sys.executable, script, place, how, engine],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        assert eventually(lambda: len(list(place.glob("ready.*"))) == 2, 90.0)
        nodes = [int(path.name.split(".")[2]) for path in place.glob("ready.*")]
        return child, nodes, place

    yield _start
    for child in children:
        for pid in [*descendants(child.pid), child.pid]:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        child.wait()
        child.stderr.close()


def living(pids):
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(pid)
    return found


CODES = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM)}
"""A shell shows the same number for a program that dies of the signal."""


@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGINT, "parent"),
        (signal.SIGINT, "group"),
        (signal.SIGTERM, "parent"),
        (signal.SIGTERM, "group"),
    ],
)
def test_a_signal_lets_every_node_finish_its_loop(start, number, to):
    """A terminal sends Ctrl-C to the whole group, a supervisor sends SIGTERM to the parent."""
    child, nodes, place = start("loops")
    if to == "parent":
        child.send_signal(number)
    else:
        os.killpg(child.pid, number)
    _, said = child.communicate(timeout=300)
    assert child.returncode in CODES[number], said
    assert living(nodes) == []
    left = sorted(path.name for path in place.iterdir() if not path.name.startswith("ready"))
    assert left == ["exit.0", "exit.1", "saved.0", "saved.1"]


@pytest.mark.parametrize("number", STOP_SIGNALS)
@pytest.mark.parametrize("end", ["all", "own"])
def test_a_signal_for_one_role_lets_it_use_the_others_until_it_ends(start, number, end):
    """Whether it ends the others itself, or leaves that to the parent by ending."""
    child, nodes, place = start(end, ONE_IS_ASKED)
    child.send_signal(number)
    _, said = child.communicate(timeout=300)
    assert child.returncode in (128 + number, -number), said
    assert living(nodes) == []
    left = sorted(path.name for path in place.iterdir() if not path.name.startswith("ready"))
    assert left == ["helped", "saved.all of it"]


@pytest.mark.parametrize("number", list(CODES))
def test_a_second_signal_ends_all_at_once(start, number):
    child, nodes, _ = start("sleeps")
    child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)
    started = time.monotonic()
    child.send_signal(number)
    _, said = child.communicate(timeout=300)
    assert time.monotonic() - started < 3.0
    assert child.returncode in CODES[number], said
    assert living(nodes) == []


@pytest.mark.parametrize("how", ["loops", "sleeps", "spins"])
def test_no_node_outlives_a_parent_that_was_killed(start, how, temporary, engine):
    child, nodes, _ = start(how)
    helpers = [pid for pid in descendants(child.pid) if pid not in nodes]
    child.kill()
    child.wait()
    assert eventually(lambda: living([*nodes, *helpers]) == [], 5.0)
    if engine == "ray":
        for path in temporary.glob("muster*"):  # nobody was there to do it
            shutil.rmtree(path)
