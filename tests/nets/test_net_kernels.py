"""Each compiled kernel against its NumPy twin, and what happens where numba cannot be had."""

import numpy as np
import pytest

from muster.nets import kernels

SHAPES = [(1, 1), (2, 64), (3, 5), (17, 33), (64, 64)]


def _same(kernel, twin, *arguments):
    """Run both on copies; every array has to come out alike. Returns one of the results."""
    ours, theirs = ([x.copy() if isinstance(x, np.ndarray) else x for x in arguments] for _ in "ab")
    got, expected = kernel(*ours), twin(*theirs)
    for mine, reference in zip([got, *ours], [expected, *theirs], strict=True):
        if mine is not None:
            np.testing.assert_allclose(mine, reference, rtol=2e-5, atol=2e-6)
    return ours


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("floor", [0.0, -np.inf])
def test_adding_a_bias(rng, shape, floor):
    z = rng.normal(size=shape).astype(np.float32)
    bias = rng.normal(size=shape[0]).astype(np.float32)
    z[0, 0] = np.nan
    (got, *_) = _same(kernels.add_bias, kernels.add_bias_numpy, z, bias, floor)
    assert np.isnan(got[0, 0])
    assert np.array_equal(got, np.maximum(z + bias[:, None], np.float32(floor)), equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_from_columns_to_rows_and_back(rng, shape):
    z = rng.normal(size=shape).astype(np.float32)
    bias = rng.normal(size=shape[0]).astype(np.float32)
    rows = rng.normal(size=shape[::-1]).astype(np.float32)
    _same(kernels.to_rows, kernels.to_rows_numpy, z, bias, rows)
    _same(kernels.to_columns, kernels.to_columns_numpy, rows, z, bias)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [kernels.RELU, kernels.TANH, kernels.LINEAR])
def test_going_back_through_an_activation(rng, shape, kind):
    d, h = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    h[0, 0] = 0  # ReLU has no slope there
    bias = np.empty(shape[0], np.float32)
    _same(kernels.through_activation, kernels.through_activation_numpy, d, h, kind, bias)


@pytest.mark.parametrize(("actions", "half"), [(1, 1), (2, 5), (6, 33)])
def test_folding_a_dueling_head_and_unfolding_its_gradient(rng, actions, half):
    shapes = [(1, half), (1,), (actions, half), (actions,), (actions, 2 * half), (actions,)]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    _same(kernels.fold_dueling, kernels.fold_dueling_numpy, *arrays)
    _same(kernels.unfold_dueling, kernels.unfold_dueling_numpy, *arrays[4:], *arrays[:4])
