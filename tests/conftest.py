"""What every test relies on."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from ray_head import ray_head  # noqa: F401
from warm_python import WarmPython

# As in an activated environment: a shell finds `muster` and `pip` of this Python by their names.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


LONG_ONES = ("test_docs", "test_every_algorithm", "test_flow", "test_examples", "test_cluster")
LONG_ROOMS = ("ray", "actors", "engines", "recipes", "devices", "data", "framework", "flow")


SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked slow
def pytest_collection_modifyitems(config, items):
    """Mark the tests of `slow_tests.txt`, and begin with the files that take longest.

    A file stays with one process, which takes another when it has time: one that begins last would
    keep a single core busy.
    """
    mark_slow(items, whole_files=not any("::" in each for each in config.args))

    def order(item):
        room = item.path.parent.name
        return (
            item.path.stem not in LONG_ONES,
            LONG_ROOMS.index(room) if room in LONG_ROOMS else len(LONG_ROOMS),
        )

    items.sort(key=order)


def mark_slow(items, whole_files):
    """Mark what `slow_tests.txt` names as slow, and refuse a line that names no test."""
    by_file = {}
    for item in items:
        by_file.setdefault(item.path.relative_to(SLOW_TESTS.parent).as_posix(), []).append(item)
    for line in SLOW_TESTS.read_text().splitlines():
        pattern, bar, stays = (part.strip() for part in line.partition("|"))
        if not pattern or pattern.startswith("#"):
            continue
        if not bar or not stays:
            raise pytest.UsageError(f"{SLOW_TESTS.name}: {pattern}: say after | which test stays")
        file, _, name = pattern.partition("::")
        names = re.compile(re.escape(name).replace(r"\*", ".*"))
        found = [each for each in by_file.get(file, []) if names.fullmatch(each.name)]
        for item in found:
            item.add_marker(pytest.mark.slow)
        if whole_files and file in by_file and not found:
            raise pytest.UsageError(f"{SLOW_TESTS.name}: no test matches {pattern}")


@pytest.fixture(scope="session", autouse=True)
def usual_signals():
    """Let Ctrl-C, SIGTERM and SIGHUP do what they usually do, here and in children.

    A shell that starts the tests in the background has them ignore SIGINT, nohup has them ignore
    SIGHUP, and so do children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module")
def warm_python():
    """Give a Python that begins programs at once, to tests that are not about their beginning.

    It ends with the file that uses it: other files look for processes that were left behind.
    """
    python = WarmPython()
    yield python
    python.close()


REGISTRIES = (("muster.nets.registry", "_models"), ("muster.recipes.algorithms", "_own"))


@pytest.fixture(autouse=True)
def own_names():
    """Forget models and algorithms that a test registers: the next one may list what there is."""

    def tables():
        return {
            module: vars(sys.modules[module])[name]
            for module, name in REGISTRIES
            if module in sys.modules
        }

    before = {module: dict(table) for module, table in tables().items()}
    yield
    for module, table in tables().items():
        table.clear()
        table.update(before.get(module, {}))
