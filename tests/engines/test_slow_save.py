"""A save that takes longer than the grace time: the node is ended after it, not in it."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from process_watch import descendants, eventually

from muster.run import CheckpointStore

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
    import os, sys, time
    from pathlib import Path
    from muster import Parallel, Task
    from muster.run import CheckpointStore
    from muster.run.files import Files

    place, how, engine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    class SlowDisk(Files):
        slept = False

        def fsync(self, fd):
            if not self.slept:
                self.slept = True
                (place / "saving").touch()
                time.sleep({"fast": 0.0, "for ever": 1000.0}.get(how, 4.0))
            super().fsync(fd)

    def main():
        store = CheckpointStore(place / "checkpoints", files=SlowDisk())
        with Task() as task:
            me = task.router.node_id

            def work(ctx):
                if ctx.total_step == 5:
                    (place / f"ready.{me}").touch()
                if how == "another fails" and me == 1 and (place / "go").exists():
                    raise ValueError("on purpose")
                time.sleep(0.002)
                yield
                if ctx.finish and me == 0:
                    store.save(ctx.total_step, {"policy": {}}, {"env_step": ctx.total_step})
                    (place / "saved").touch()
                    while how == "does not end":
                        time.sleep(0.1)

            task.use(work)
            task.run()

    if __name__ == "__main__":
        Parallel.runner(2, engine=engine, grace=1.0, hang_after=60.0)(main)
    """


@pytest.fixture
def start(engine, tmp_path):
    script, place = tmp_path / "program.py", tmp_path / "place"
    script.write_text(textwrap.dedent(PROGRAM))
    place.mkdir()
    children = []

    def _start(how):
        child = subprocess.Popen(
            [sys.executable, script, place, how, engine],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        assert eventually(lambda: len(list(place.glob("ready.*"))) == 2, 100.0)
        return child, place

    yield _start
    for child in children:
        for pid in [*descendants(child.pid), child.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        child.communicate()


@pytest.mark.parametrize(
    "how",
    [
        "fast",
        "slow",
        pytest.param("another fails", marks=pytest.mark.slow),
        pytest.param("does not end", marks=pytest.mark.slow),
    ],
)
def test_what_is_being_saved_is_saved_and_the_grace_time_comes_after_it(start, how):
    child, place = start(how)
    if how == "another fails":
        (place / "go").touch()
    else:
        child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=300)
    assert child.returncode == (1 if how == "another fails" else 143), said
    assert CheckpointStore(place / "checkpoints").load().counters["env_step"] > 0
    if how != "fast":  # and one that does not end afterwards has ended all the same
        took = (place / "saved").stat().st_mtime - (place / "saving").stat().st_mtime
        assert took > 3.9, "the disk was not slow"  # the clock of files is a coarse one


def test_a_second_signal_does_not_wait_for_the_save(start):
    child, place = start("for ever")
    child.send_signal(signal.SIGTERM)
    assert eventually((place / "saving").exists, 60.0)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=300)
    assert child.returncode == 143
    assert not (place / "saved").exists()
