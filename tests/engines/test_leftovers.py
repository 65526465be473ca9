"""What a node has started and detached from itself does not outlive it (local engine)."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import failure_programs
import pytest
from conftest import shared_memory
from process_watch import descendants, eventually

from muster import NodeError, Parallel

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("end", ["returns", "SIGKILL"])
@pytest.mark.parametrize(
    ("how", "times"),
    [("exec", 0), ("exec", 1), ("exec", 2), ("fork", 1)],
    ids=["a session of its own", "forked once", "forked twice", "not even another program"],
)
def test_a_detached_process_is_ended_with_its_node_and_named(tmp_path, how, times, end):
    place, logs = tmp_path / "place", tmp_path / "logs"
    place.mkdir()
    run = Parallel.runner(2, log_dir=logs)
    if end == "returns":
        assert run(failure_programs.leaves_running, place, how, times) == [0, 1]
    else:
        with pytest.raises(NodeError):
            run(failure_programs.leaves_running, place, how, times, end)
    (pid,) = (path.name for path in place.iterdir())
    assert eventually(lambda: not Path(f"/proc/{pid}").exists(), 2.0)
    log = "".join(path.read_text() for path in logs.iterdir())
    assert "left a process running" in log and f"(process {pid})" in log


def test_a_detached_process_of_one_node_outlives_another_node(tmp_path):
    """Only what the dead node has started is ended, as long as others live."""
    place = tmp_path / "place"
    place.mkdir()
    got = Parallel.runner(2, on_failure={0: "restart"})(
        failure_programs.sees_a_neighbours_process_alive, place
    )
    assert got == [True, None]


LOCKS = """
    import multiprocessing, os, sys, time
    from pathlib import Path
    from muster import Parallel, Task

    def main(place):
        lock = multiprocessing.Lock()  # as an environment, or tqdm, would make one
        with Task() as task:
            Path(place, str(os.getpid())).touch()
            task.use(lambda ctx: time.sleep(0.01)).run()

    if __name__ == "__main__":
        Parallel.runner(2)(main, sys.argv[1])
    """


@pytest.mark.parametrize("whom", ["driver", "group", "node"])
def test_named_semaphores_do_not_stay_behind_whoever_is_killed(tmp_path, whom):
    script, place = tmp_path / "program.py", tmp_path / "place"
    script.write_text(textwrap.dedent(LOCKS))
    place.mkdir()
    before = shared_memory()
    child = subprocess.Popen(
        [sys.executable, script, place], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert eventually(lambda: len(list(place.iterdir())) == 2, 30.0)
        assert len(shared_memory() - before) >= 2, "there is nothing to leave"
        below = list(descendants(child.pid))
        if whom == "node":
            os.kill(int(next(place.iterdir()).name), signal.SIGKILL)
        else:
            (os.kill if whom == "driver" else os.killpg)(child.pid, signal.SIGKILL)
        _, said = child.communicate(timeout=300)
    finally:
        child.kill()
        child.communicate()
    assert eventually(lambda: shared_memory() <= before, 5.0), shared_memory() - before
    assert "resource_tracker" not in said
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 5.0)


DETACHED = """
    import sys, time
    from muster import Parallel
    import failure_programs

    if __name__ == "__main__":
        Parallel.runner(2)(failure_programs.starts_and_stays, sys.argv[1], sys.argv[2])
    """


@pytest.mark.parametrize("how", ["exec", "fork"])
def test_a_detached_process_is_ended_when_the_driver_is_killed(tmp_path, how):
    script, place = tmp_path / "program.py", tmp_path / "place"
    script.write_text(textwrap.dedent(DETACHED))
    place.mkdir()
    child = subprocess.Popen(
        [sys.executable, script, place, how],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        start_new_session=True,
    )
    try:
        assert eventually(lambda: any(place.iterdir()), 30.0)
        (pid,) = (path.name for path in place.iterdir())
        assert Path(f"/proc/{pid}").exists()
    finally:
        child.kill()
        child.wait()
    assert eventually(lambda: not Path(f"/proc/{pid}").exists(), 5.0)


def test_a_forked_process_has_no_connection_of_the_node_that_it_comes_from():
    """Others took it for the node, when that was gone, and waited for its answers for a minute."""
    assert Parallel.runner(2)(failure_programs.forks)[1] == "-"
