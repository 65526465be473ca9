"""What the contract tests of every engine share: how a run is started, and what it leaves."""

import gc
import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import node_programs
import pytest
from process_watch import descendants, eventually

from muster import Parallel

QUICK_ON_RAY = (
    "test_every_gradient_is_used_exactly_once",
    "test_readers_see_whole_versions_that_only_rise_and_the_newest_in_the_end",
    "test_replay_at_home_mixes_no_two_actors_and_keeps_samples_per_insert",
)
"""What is tried on Ray whenever tests run; a start takes seconds there, so the rest is slow."""

RAY_OWN = ("/ray/", "ray::")
"""In the commands of what a Ray cluster runs, whether anybody uses it or not, and of actors."""

SHARED_MEMORY = Path("/dev/shm")
TEST_DIRECTORY = "muster-test-"
"""How the name of a directory begins that another test has there, of files that are in memory."""


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        quick = metafunc.function.__name__ in QUICK_ON_RAY
        slow = [] if quick else [pytest.mark.slow]
        engines = ["local", pytest.param("ray", marks=slow)]
        metafunc.parametrize("engine", engines, scope="module")


@pytest.fixture(scope="module")
def run(engine, request):
    """Run a program on this engine, and look at once whether a process was left."""
    if engine == "ray":
        request.getfixturevalue("ray_cluster")

    def _run(main, *args, n=2, runner=None, **kwargs):
        options = {"grace": 5.0, **(runner or {})}
        try:
            return Parallel.runner(n, engine=engine, **options)(main, *args, **kwargs)
        finally:
            assert left_running(engine) == {}, "the runner returned before all nodes were gone"

    return _run


def left_running(engine="local"):
    """Return what runs below this process and should not, and what it is."""

    def found():
        return {
            pid: command
            for pid, command in descendants().items()
            if not any(own in command for own in RAY_OWN)
        }

    # On Ray, an actor that was told to end is about to, and a spare worker may be about to start.
    if engine == "ray" and eventually(lambda: not found(), 5.0):
        return {}
    return found()


@pytest.fixture(scope="module")
def ray_cluster(before_any_run):
    """A Ray cluster on this machine that all runs of a module join."""
    pytest.importorskip("ray")
    from muster.engines.ray.cluster import joined

    with joined(num_cpus=16):
        Parallel.runner(2, engine="ray")(node_programs.echo)
        before_any_run.update(what_there_is())
        yield


def shared_memory():
    return {entry.name for entry in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def used_by_others(name):
    """Whether a process that is not ours has this shared memory: then it is not our leak."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"{SHARED_MEMORY}/{name}" in (entry / "maps").read_text():
                    return True
    return False


def left_in_memory(before):
    """Return the shared memory that came after `before` and that nobody else uses."""
    new = {name for name in shared_memory() - before if not name.startswith(TEST_DIRECTORY)}
    return [name for name in new if not used_by_others(name)]


def descriptors():
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
    if "ray" in sys.modules:  # its connections come and go
        return {fd: what for fd, what in found.items() if what.startswith(("pipe:", "/memfd"))}
    return found


@pytest.fixture(scope="session")
def temporary(tmp_path_factory):
    """Have every temporary file made in a place of our own, where leftovers can be told."""
    place = tmp_path_factory.mktemp("t")
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir, os.environ["TMPDIR"] = str(place), str(place)
    yield place
    tempfile.tempdir = before
    os.environ.pop("TMPDIR")
    if variable is not None:
        os.environ["TMPDIR"] = variable


@pytest.fixture(scope="session")
def before_any_run(temporary):
    """What there was when Python's helpers ran already, and no node did."""
    Parallel.runner(2)(node_programs.echo)
    return what_there_is()


def what_there_is():
    return {
        "descriptors": descriptors(),
        "shared memory": shared_memory(),
        "threads": set(threading.enumerate()),
    }


@pytest.fixture(scope="module", autouse=True)
def after_the_first_run(before_any_run):
    """Runs that a module shares begin after the look at what there was."""


@pytest.fixture(autouse=True)
def nothing_is_left(before_any_run, temporary):
    """After every test: no process, thread, descriptor, shared memory or directory is left."""
    yield
    assert left_running("ray" if "ray" in sys.modules else "local") == {}
    old = before_any_run
    assert eventually(lambda: len(descriptors()) <= len(old["descriptors"]), 1.0), set(
        descriptors().items()
    ) - set(old["descriptors"].items())
    if not set(threading.enumerate()) <= old["threads"]:
        gc.collect()  # an agent of another test ends its threads when it is collected
    assert eventually(lambda: set(threading.enumerate()) <= old["threads"], 1.0), (
        threading.enumerate()
    )
    # Tests beside this one make and remove shared memory of their own; only what stays is a leak.
    assert eventually(lambda: not left_in_memory(old["shared memory"]), 5.0), left_in_memory(
        old["shared memory"]
    )
    # After a killed driver, its fork server removes the directory, when all nodes have ended.
    assert eventually(lambda: not directories_in(temporary), 5.0), directories_in(temporary)


def directories_in(temporary):
    return [path.name for path in temporary.iterdir() if "muster" in path.name]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory for the runs that a module shares."""
    return tmp_path_factory.mktemp("runs")
