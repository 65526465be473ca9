"""What the contract tests of every engine share: how a run is started, and what it leaves."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import node_programs
import pytest
from process_watch import descendants, eventually

from muster import Parallel

ENGINES = ["local"]
"""Every engine passes this suite."""

SHARED_MEMORY = Path("/dev/shm")


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", ENGINES, scope="module")


@pytest.fixture(scope="module")
def run(engine):
    """Run a program on this engine, and look at once whether a process was left."""

    def _run(main, *args, n=2, runner=None, **kwargs):
        options = {"grace": 5.0, **(runner or {})}
        try:
            return Parallel.runner(n, engine=engine, **options)(main, *args, **kwargs)
        finally:
            assert descendants() == {}, "the runner returned before all nodes were gone"

    return _run


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


def descriptors():
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
    return found


@pytest.fixture(scope="session")
def temporary(tmp_path_factory):
    """Have every temporary file made in a place of our own, where leftovers can be told."""
    import tempfile

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
    assert descendants() == {}
    old = before_any_run
    assert eventually(lambda: len(descriptors()) <= len(old["descriptors"]), 1.0), set(
        descriptors().items()
    ) - set(old["descriptors"].items())
    assert eventually(lambda: set(threading.enumerate()) <= old["threads"], 1.0), (
        threading.enumerate()
    )
    new = shared_memory() - old["shared memory"]
    assert [name for name in new if not used_by_others(name)] == []
    assert [path.name for path in temporary.iterdir() if "muster" in path.name] == []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory for the runs that a module shares."""
    return tmp_path_factory.mktemp("runs")
