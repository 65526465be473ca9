"""The register tile: products, their bits, transposition, and what happens without numba."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest

from muster.nets.tile import FUSED, multiply, spread, transpose
from muster.nets.vector_code import LANES

LOWEST = np.float32(-np.inf)
needs_numba = pytest.mark.skipif(not FUSED, reason="numba cannot compile here")


def _floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def _product(c, a, b):
    """Return c + a @ b, in room with a margin that must stay as it is."""
    (m, depth), n = a.shape, b.shape[1]
    room = np.full(7 + m * (n + 3), np.float32(-5))
    rows = room[7:].reshape(m, n + 3)
    rows[:, :n] = c
    sizes = m, n, depth
    multiply(room, 7, n + 3, a.ravel(), 0, depth, 1, b.ravel(), 0, n, *sizes, room, 0, -1, LOWEST)
    assert (room[:7] == -5).all() and (rows[:, n:] == -5).all()
    return rows[:, :n].copy()


@needs_numba
@pytest.mark.parametrize("m", range(1, 20))
@pytest.mark.parametrize(("n", "depth"), [(16, 1), (16, 64), (32, 5), (64, 0), (80, 3), (192, 7)])
def test_a_product_is_added(rng, m, n, depth):
    c, a, b = _floats(rng, m, n), _floats(rng, m, depth), _floats(rng, depth, n)
    expected = c + a.astype(np.float64) @ b
    np.testing.assert_allclose(_product(c, a, b), expected, rtol=1e-5, atol=1e-5)


@needs_numba
@pytest.mark.parametrize("m", [1, 5, 6, 13])
@pytest.mark.parametrize("step", [0, 1])
def test_a_product_starts_from_numbers_of_rows_and_ends_at_a_floor(rng, m, step):
    a, b, start = _floats(rng, m, 7), _floats(rng, 7, 32), _floats(rng, m + 2)
    a[0, 0], b[0, 3] = np.nan, 1.0
    c = np.full(m * 32, np.float32(np.nan))  # is not read
    floor = np.float32(0.25)
    sizes = m, 32, 7
    multiply(c, 0, 32, a.ravel(), 0, 7, 1, b.ravel(), 0, 32, *sizes, start, 2, step, floor)
    rows = start[2 : 2 + m] if step else np.full(m, start[2])
    with np.errstate(invalid="ignore"):
        plain = _product(np.repeat(rows[:, None], 32, axis=1), a, b)
    expected = np.where(plain < floor, floor, plain)
    assert np.array_equal(c.reshape(m, 32), expected, equal_nan=True)
    assert np.isnan(c[:32]).all() and (m == 1 or (c[32:] == floor).any())


@needs_numba
def test_the_left_matrix_may_lie_either_way_round(rng):
    c, a, b = _floats(rng, 13, 32), _floats(rng, 13, 9), _floats(rng, 9, 32)
    expected = _product(c, a, b)
    got = c.copy().ravel()
    turned = np.ascontiguousarray(a.T).ravel()
    multiply(got, 0, 32, turned, 0, 1, 13, b.ravel(), 0, 32, 13, 32, 9, got, 0, -1, LOWEST)
    assert np.array_equal(got.reshape(13, 32), expected)


@needs_numba
@pytest.mark.parametrize("n", [16, 80])
def test_a_deep_product_across_rows_is_cut_into_pieces_that_no_bit_shows(rng, n):
    depth, m = 70, 1500  # _FITS // m is less than the depth: two pieces
    a, b, start = _floats(rng, m, depth), _floats(rng, depth, n), _floats(rng, m)
    c = np.full(m * n, np.float32(np.nan))  # is not read
    turned = np.ascontiguousarray(a.T).ravel()
    floor = np.float32(0)
    multiply(c, 0, n, turned, 0, 1, m, b.ravel(), 0, n, m, n, depth, start, 0, 1, floor)
    plain = _product(np.repeat(start[:, None], n, axis=1), a, b)
    assert np.array_equal(c.reshape(m, n), np.where(plain < floor, floor, plain))


@needs_numba
@pytest.mark.parametrize("n", [16, 64])
def test_an_element_is_one_chain_of_multiply_adds(rng, n):
    c, a, b = _floats(rng, 11, n), _floats(rng, 11, 40), _floats(rng, 40, n)
    got = _product(c, a, b)
    # A product of two float32 is exact in float64, so this rounds as often as a chain of fma,
    # except where float64 rounds a sum to a tie of float32: never here.
    expected = c.copy()
    for k in range(40):
        exact = a[:, k, None].astype(np.float64) * b[k].astype(np.float64)
        expected = (exact + expected.astype(np.float64)).astype(np.float32)
    assert np.array_equal(got, expected)


@needs_numba
def test_bits_depend_neither_on_neighbours_nor_on_how_depth_is_cut(rng):
    c, a, b = _floats(rng, 17, 48), _floats(rng, 17, 30), _floats(rng, 30, 48)
    whole = _product(c, a, b)
    for i in range(17):
        alone = _product(c[i : i + 1, 16:32], a[i : i + 1], np.ascontiguousarray(b[:, 16:32]))
        assert np.array_equal(alone[0], whole[i, 16:32])
    half = _product(c, np.ascontiguousarray(a[:, :11]), b[:11])
    assert np.array_equal(_product(half, np.ascontiguousarray(a[:, 11:]), b[11:]), whole)


@needs_numba
def test_nan_stays_in_its_row_and_column(rng):
    c, a, b = np.zeros((7, 16), np.float32), _floats(rng, 7, 5), _floats(rng, 5, 16)
    a[2, 3] = np.nan
    b[1, 9] = np.inf
    got = _product(c, a, b)
    assert np.isnan(got[2]).all()
    assert not np.isfinite(got[:, 9]).any()
    assert np.isfinite(np.delete(np.delete(got, 2, axis=0), 9, axis=1)).all()


@needs_numba
@pytest.mark.parametrize(("m", "n"), [(16, 16), (16, 48), (80, 64)])
def test_transposing(rng, m, n):
    assert not m % LANES and not n % LANES
    a = _floats(rng, m, n)
    room = np.full(2 + n * (m + 4), np.float32(-5))
    transpose(room, 2, m + 4, a.ravel(), 0, n, m, n)
    rows = room[2:].reshape(n, m + 4)
    assert np.array_equal(rows[:, :m], a.T)
    assert (rows[:, m:] == -5).all() and (room[:2] == -5).all()


@needs_numba
def test_spreading_a_column(rng):
    values, room = _floats(rng, 9), np.full(3 + 5 * 32 + 4, np.float32(-5))
    spread(room, 3, 32, values, 2, 5)
    assert np.array_equal(room[3:-4].reshape(5, 32), np.repeat(values[2:7, None], 32, axis=1))
    assert (room[:3] == -5).all() and (room[-4:] == -5).all()


@needs_numba
def test_a_kernel_is_compiled_again_when_a_part_in_another_file_changes(tmp_path, monkeypatch):
    (tmp_path / "whole_of_it.py").write_text(
        "from muster.jit import jit\n"
        "from muster.nets.tile import absent, keep_with\n"
        "from part_of_it import seven\n"
        "@jit(absent)\n"
        "def kernel():\n"
        "    return seven()\n"
        "keep_with(kernel, seven)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    results = []
    for number in (7, 7, 8):
        (tmp_path / "part_of_it.py").write_text(
            f"from muster.nets.tile import part\n@part\ndef seven():\n    return {number}\n"
        )
        for name in ("part_of_it", "whole_of_it"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        for compiled in (tmp_path / "__pycache__").glob("*.pyc"):
            compiled.unlink()  # of the same second and size
        kernel = importlib.import_module("whole_of_it").kernel
        results.append((kernel(), sum(kernel.stats.cache_hits.values())))
    assert results == [(7, 0), (7, 1), (8, 0)]


WITHOUT = """
import sys
{before}
import numpy as np
from muster.nets.tile import FUSED
from muster.nets.fused_policy import why_not_fused
from muster.rl_utils.gae import gae, gae_numpy
from muster.rl_utils.losses.ppo import ppo_loss, ppo_loss_numpy
from torch import nn
assert not FUSED and gae is gae_numpy and ppo_loss is ppo_loss_numpy
assert "numba" in why_not_fused(nn.Linear(1, 1), None)
"""


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        ("", {"MUSTER_NUMBA": "0"}),
        ("", {"NUMBA_DISABLE_JIT": "1"}),
        ("sys.modules['numba'] = None", {}),
        (
            "from numba.core import caching\n"
            "caching.CacheImpl._locator_classes = []  # nowhere to keep anything",
            {},
        ),
    ],
    ids=["asked for", "disabled", "absent", "no cache"],
)
def test_without_numba_modules_import_and_say_so(before, environment):
    code = WITHOUT.format(before=before)
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, check=True, timeout=300
    )
