"""Without numba the same program gives the same bits."""

import hashlib
import importlib
import logging
import sys

import numpy as np
import pytest
from gymnasium import spaces
from histories import World, run, vector_buffer

from muster.data import ReplayBuffer, _jit, kernels, sum_tree


@pytest.fixture
def without_numba(monkeypatch):
    """Return a function that puts the NumPy twins in place of the compiled kernels."""

    def switch():
        monkeypatch.setenv(_jit.ENVIRONMENT_VARIABLE, "0")
        importlib.reload(kernels)
        importlib.reload(sum_tree)

    yield switch
    monkeypatch.undo()
    importlib.reload(kernels)
    importlib.reload(sum_tree)


def digest_of(batches):
    digest = hashlib.sha256()
    for batch in batches:
        for name in batch.__slots__:
            value = getattr(batch, name)
            for array in value.values() if isinstance(value, dict) else [value]:
                digest.update(array.tobytes())
    return digest.hexdigest()


def play(prioritized, n_step):
    """Run a long random program with ends of every kind; return a digest of all it sampled."""
    rng, batches = np.random.default_rng(n_step), []
    buffer = vector_buffer(300, 3, n_step=n_step, gamma=0.97, prioritized=prioritized)
    world = World(3)
    for _ in range(60):
        run(buffer, world, 7, rng, 0.1)
        for _ in range(3):
            batches.append(buffer.sample(17))
            buffer.update_priorities(batches[-1].index, rng.normal(size=17))
    return digest_of(batches)


def play_images():
    space = spaces.Dict({"camera": spaces.Box(0, 255, (6, 5), np.uint8), "n": spaces.Discrete(9)})
    buffer = ReplayBuffer(40, space, spaces.Box(-1, 1, (2,)), num_envs=1, n_step=2)
    space.seed(0)
    flags = np.random.default_rng(0).random((90, 2, 1)) < 0.2
    for terminated, truncated in flags:
        one, two = ({key: np.array([v]) for key, v in space.sample().items()} for _ in range(2))
        buffer.add(one, np.ones((1, 2)), np.ones(1), two, terminated, truncated)
    return digest_of([buffer.sample_many(5, 40)])


def test_a_whole_program_gives_the_same_bits(without_numba):
    assert kernels.resolve is not kernels.resolve_numpy
    programs = [(p, n) for p in (False, True) for n in (1, 4)]
    compiled = [play(*each) for each in programs] + [play_images()]
    without_numba()
    assert kernels.resolve is kernels.resolve_numpy and sum_tree.find is sum_tree.find_numpy
    assert [play(*each) for each in programs] + [play_images()] == compiled


def loops(x):
    return x


def twin(x):
    return x


@pytest.fixture
def told(caplog):
    _jit._tell_once.cache_clear()
    caplog.set_level(logging.WARNING, "muster")
    yield lambda: caplog.messages
    _jit._tell_once.cache_clear()


def test_numba_compiles_where_it_can(told):
    assert _jit.jit(twin)(loops) is not twin
    assert _jit.jit(twin)(loops)(3) == 3
    assert not told()


def test_without_numba_the_twin_is_used_and_the_log_says_so_once(monkeypatch, told):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert _jit.jit(twin)(loops) is twin
    assert _jit.jit(twin)(loops) is twin
    (message,) = told()
    assert "numba cannot be imported" in message


def test_without_a_place_for_its_cache_the_twin_is_used(told):
    namespace = {}
    exec("def homeless(x):\n    return x\n", namespace)  # numba caches by source file
    assert _jit.jit(twin)(namespace["homeless"]) is twin
    (message,) = told()
    assert "NUMBA_CACHE_DIR" in message
