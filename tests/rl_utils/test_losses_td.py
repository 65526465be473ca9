"""The TD loss: compiled against its NumPy twin, and what it says of batches that are none."""

import numpy as np
import pytest

from muster.rl_utils.losses.td import BAD_SHAPES, td_loss, td_loss_numpy


@pytest.fixture
def rng():
    return np.random.default_rng(0)


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
    twins = [np.empty_like(each) for each in outputs]
    assert td_loss(*inputs, huber, *outputs) == td_loss_numpy(*inputs, huber, *twins) == -1
    for ours, theirs in zip(outputs, twins, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("loss", [td_loss, td_loss_numpy])
def test_an_action_that_does_not_exist_is_told_and_not_looked_up(rng, loss):
    inputs, outputs = _batch(rng, 8, 3)
    for wrong in (3, -1, 10**12):
        inputs[1][:] = 0
        inputs[1][5] = wrong
        assert loss(*inputs, True, *outputs) == 5


@pytest.mark.parametrize("loss", [td_loss, td_loss_numpy])
@pytest.mark.parametrize("which", range(7))
def test_arrays_of_different_batches_are_told_and_not_read(rng, loss, which):
    inputs, outputs = _batch(rng, 8, 3)
    inputs[which] = inputs[which][:5]
    assert loss(*inputs, True, *outputs) == BAD_SHAPES


@pytest.mark.parametrize("loss", [td_loss, td_loss_numpy])
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


@pytest.mark.parametrize("loss", [td_loss, td_loss_numpy])
@pytest.mark.parametrize("action", [0, 1, 2])
def test_a_single_nan_among_the_next_values_is_not_passed_over(rng, loss, action):
    inputs, outputs = _batch(rng, 8, 3)
    inputs[4][4, action] = np.nan
    inputs[5] = inputs[4]
    loss(*inputs, True, *outputs)
    assert np.isnan(outputs[2][0])
