"""What a node has started and detached from itself does not outlive it (local engine)."""

from pathlib import Path

import failure_programs
import pytest
from process_watch import eventually

from muster import NodeError, Parallel

pytestmark = pytest.mark.timeout(60)


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
    assert "had left a process running" in log and f"(process {pid})" in log


def test_a_detached_process_of_one_node_outlives_another_node(tmp_path):
    """Only what the dead node has started is ended, as long as others live."""
    place = tmp_path / "place"
    place.mkdir()
    got = Parallel.runner(2, on_failure={0: "restart"})(
        failure_programs.sees_a_neighbours_process_alive, place
    )
    assert got == [True, None]
