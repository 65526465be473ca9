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


def _batch(rng, size, actions):
    q, next_q, choose_by = (3 * rng.normal(size=(size, actions)) for _ in range(3))
    columns = [rng.normal(size=size), rng.random(size), q, rng.random(size)]
    reward, discount, _, weight = (x.astype(np.float32) for x in columns)
    action = rng.integers(0, actions, size)
    outputs = np.empty((size, actions), np.float32), np.empty(size, np.float32), np.empty(3)
    values = [x.astype(np.float32) for x in (q, next_q, choose_by)]
    return [values[0], action, reward, discount, values[1], values[2], weight], outputs


@pytest.mark.parametrize("huber", [False, True])
@pytest.mark.parametrize(("size", "actions"), [(1, 1), (64, 2), (33, 7)])
def test_the_loss_of_a_batch(rng, size, actions, huber):
    inputs, outputs = _batch(rng, size, actions)
    _same(kernels.td_loss, kernels.td_loss_numpy, *inputs, huber, *outputs)


@pytest.mark.parametrize("loss", [kernels.td_loss, kernels.td_loss_numpy])
def test_an_action_that_does_not_exist_is_told_and_not_looked_up(rng, loss):
    inputs, outputs = _batch(rng, 8, 3)
    for wrong in (3, -1, 10**12):
        inputs[1][:] = 0
        inputs[1][5] = wrong
        assert loss(*inputs, True, *outputs) == 5


@pytest.mark.parametrize("loss", [kernels.td_loss, kernels.td_loss_numpy])
@pytest.mark.parametrize("which", range(7))
def test_arrays_of_different_batches_are_told_and_not_read(rng, loss, which):
    inputs, outputs = _batch(rng, 8, 3)
    inputs[which] = inputs[which][:5]
    assert loss(*inputs, True, *outputs) == kernels.BAD_SHAPES


@pytest.mark.parametrize("loss", [kernels.td_loss, kernels.td_loss_numpy])
@pytest.mark.parametrize("where", [0, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("huber", [False, True])
def test_nan_is_never_hidden_in_a_loss(rng, loss, where, huber):
    inputs, outputs = _batch(rng, 8, 3)
    inputs[where][4] = np.nan
    loss(*inputs, huber, *outputs)
    if where == 5:  # NaN as what to choose by: the action is chosen, but its value is sound
        inputs[4][4] = np.nan
        loss(*inputs, huber, *outputs)
    assert np.isnan(outputs[2][0])


@pytest.mark.parametrize("loss", [kernels.td_loss, kernels.td_loss_numpy])
@pytest.mark.parametrize("action", [0, 1, 2])
def test_a_single_nan_among_the_next_values_is_not_passed_over(rng, loss, action):
    inputs, outputs = _batch(rng, 8, 3)
    inputs[4][4, action] = np.nan
    inputs[5] = inputs[4]
    loss(*inputs, True, *outputs)
    assert np.isnan(outputs[2][0])
