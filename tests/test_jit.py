"""Kernels are compiled where that works, and their NumPy twins run where it does not."""

import importlib
import logging
import os
import subprocess
import sys

import pytest

from muster import jit


def loops(x):
    return x


def twin(x):
    return x


@pytest.fixture
def told(caplog):
    jit._tell_once.cache_clear()
    caplog.set_level(logging.WARNING, "muster")
    yield lambda: caplog.messages
    jit._tell_once.cache_clear()


@pytest.mark.parametrize("rounding", ["exact", "contract", "reorder"])
def test_numba_compiles_where_it_can(told, rounding):
    compiled = jit.jit(twin, rounding)(loops)
    assert compiled is not twin and compiled(3) == 3
    assert not told()


def test_without_numba_the_twin_is_used_and_the_log_says_so_once(monkeypatch, told):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert jit.jit(twin)(loops) is twin
    assert jit.jit(twin)(loops) is twin
    (message,) = told()
    assert "numba cannot be imported" in message


def test_without_a_place_for_its_cache_the_twin_is_used(told):
    namespace = {}
    exec("def homeless(x):\n    return x\n", namespace)  # numba caches by source file
    assert jit.jit(twin)(namespace["homeless"]) is twin
    (message,) = told()
    assert "NUMBA_CACHE_DIR" in message


def test_numpy_can_be_asked_for(monkeypatch):
    monkeypatch.setenv(jit.ENVIRONMENT_VARIABLE, "0")
    assert jit.jit(twin)(loops) is twin


def test_loops_are_never_run_as_python(monkeypatch):
    numba = importlib.import_module("numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert jit.jit(twin)(loops) is twin


FIRST_AND_LATER = """
import sys
sys.path.insert(0, sys.argv[1])
from muster import jit
from kept_kernels import double, triple

print(jit.compiled_before(double), jit.compiled_before(triple))
assert double(2) == 4
print(jit.compiled_before(double), jit.compiled_before(triple), jit.compiled_before(len))
"""


def test_it_is_known_whether_any_kernel_of_a_package_was_compiled_here_before(tmp_path):
    kernels = "from muster import jit\n"
    for name, factor in (("double", 2), ("triple", 3)):
        kernels += f"@jit.jit(None)\ndef {name}(x):\n    return {factor} * x\n"
    (tmp_path / "kept_kernels.py").write_text(kernels)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for said in (["False False", "True True True"], ["True True", "True True True"]):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_AND_LATER, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.stdout.splitlines() == said, done.stderr


READ_ONLY = """
import errno, sys
from numba.core import caching

def is_read_only(self):
    raise OSError(errno.EROFS, "read-only")

for name in ("InTreeCacheLocator", "UserWideCacheLocator"):
    locator = getattr(caching, name, None) or getattr(caching, f"_{name}")
    locator.ensure_cache_path = is_read_only
sys.path.insert(0, sys.argv[1])
from kept_kernels import double

assert double(2) == 4
print(double.stats.cache_path)
"""


def test_where_all_is_read_only_kernels_are_kept_among_temporary_files(tmp_path):
    code, temporary = tmp_path / "code", tmp_path / "temporary"
    code.mkdir()
    temporary.mkdir()
    kernel = "from muster import jit\n@jit.jit(None)\ndef double(x):\n    return 2 * x\n"
    (code / "kept_kernels.py").write_text(kernel)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(code)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    place = temporary / f"muster-{os.getuid()}"
    assert done.stdout.startswith(f"{place}/"), done.stderr
    assert any(place.rglob("kept_kernels.double-*.nbi"))
    assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["own", "open to others", "of another", "a link", "a file"])
def test_a_place_that_another_user_may_have_made_is_left_alone(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / f"muster-{os.getuid()}"
    if kind == "a file":
        place.touch()
    elif kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif kind != "own":
        place.mkdir(mode=0o700)
        place.chmod(0o770 if kind == "open to others" else 0o700)
    if kind == "of another":
        if os.getuid():
            pytest.skip("only root can give a directory away")
        os.chown(place, 12_345, 12_345)
    assert jit._own_temporary() == (place if kind == "own" else None)
