"""Kernels are compiled where that works, and their NumPy twins run where it does not."""

import importlib
import logging
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
