"""A Ray cluster whose servers are killed under a run: the run ends in seconds, and says why."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(400)

LOSES = """
import os, signal, sys, threading, time
import ray
from muster import ClusterError, Parallel, Task

victim, place = sys.argv[1:]

def main():
    with Task() as task:
        def work(ctx):
            open(f"{place}/{task.router.node_id}", "w").close()
            time.sleep(0.01)
        task.use(work)
        task.run()
    return "told to finish"

def kill():
    while len(os.listdir(place)) < 2:
        time.sleep(0.01)
    node = ray._private.worker.global_worker.node
    pid = node.all_processes[victim][0].process.pid
    os.kill(pid, signal.SIGKILL)
    print("killed", victim, flush=True)
    global at
    at = time.monotonic()

if __name__ == "__main__":
    threading.Thread(target=kill, daemon=True).start()
    try:
        Parallel.runner(2, engine="ray")(main)
    except ClusterError as error:
        print(error)
        assert time.monotonic() - at < 30
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("muster")]
    print("left:", left)
"""


@pytest.mark.parametrize("victim", ["raylet", pytest.param("gcs_server", marks=pytest.mark.slow)])
def test_a_run_ends_in_three_lines_when_a_server_of_its_cluster_is_killed(
    ray_head, tmp_path, victim
):
    program, place = tmp_path / "program.py", tmp_path / "place"
    program.write_text(LOSES)
    place.mkdir()
    done = subprocess.run(
        [sys.executable, program, victim, place],
        env=ray_head.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    said = re.findall(r"^(?:killed|the Ray|  why|  try|left).*", done.stdout, re.M)
    assert said == [
        f"killed {victim}",
        "the Ray cluster of this run is lost",
        f"  why: Ray's {victim} on this machine has ended: it failed, or was killed",
        "  try: the same command with --resume, which continues from the last checkpoint",
        "left: []",
    ], done.stdout
    assert done.returncode == 0


STARTS = """
import os, signal, sys, threading, time
import ray
from muster import ClusterError
from muster.engines.ray.cluster import joined

victim, times = sys.argv[1], int(sys.argv[2])

def found():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat, open(f"/proc/{name}/cmdline") as command:
                if stat.read().rpartition(")")[2].split()[1] == str(os.getpid()):
                    if command.read().partition("\\0")[0].endswith(f"/{victim}"):
                        yield int(name)
        except OSError:
            pass

def kill():
    killed = set()
    while len(killed) < times:
        for pid in found():
            if pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                print("killed", flush=True)

threading.Thread(target=kill, daemon=True).start()
try:
    with joined(None, 1):
        print(ray.get(ray.put("up")))
except ClusterError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_a_cluster_that_does_not_come_up_is_started_once_more(ray_head, times):
    said = ray_head.driver(STARTS, "raylet", str(times), env=ray_head.env()).splitlines()
    assert said[:times] == ["killed"] * times
    if times == 1:
        assert said[1:] == ["up"]
    else:
        assert said[2] == "a Ray cluster on this machine could not be started"
        assert said[3].startswith("  why: Ray says: ")
        assert "timed out" not in said[3], "it waited for Ray's own 30 s"
        assert said[4].startswith("  try: the same command again")
        assert len(said) == 5


@pytest.mark.slow
def test_a_start_that_ray_never_returns_from_ends_the_process_in_three_lines(ray_head):
    """Without its GCS Ray waits where nothing can reach it, and would then end the process, too."""
    command = [sys.executable, "-c", STARTS, "gcs_server", "1"]
    done = subprocess.run(command, env=ray_head.env(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == "killed\n"
    assert done.stderr.splitlines()[-3:] == [
        "muster: a Ray cluster on this machine could not be started",
        "  why: Ray's gcs_server ended during its start: it failed, or was killed",
        "  try: the same command again; with --resume if the run had already begun",
    ]
