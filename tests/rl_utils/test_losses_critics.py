"""Losses of critics against plain autograd."""

import numpy as np
import pytest
import torch

from muster.rl_utils.losses.critics import quantile_loss, squared_loss


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_squared_errors(rng):
    values, target, weight = (rng.normal(size=n).astype(np.float32) for n in ((9, 1), 9, 9))
    found = squared_loss(values, target, weight)
    tensor = torch.tensor(values, requires_grad=True)
    error = tensor[:, 0] - torch.from_numpy(target)
    loss = 0.5 * (torch.from_numpy(weight) * error**2).mean()
    loss.backward()
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(found.dvalues, tensor.grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.td_error, values[:, 0] - target)


@pytest.mark.parametrize(("quantiles", "targets"), [(1, 1), (5, 3), (25, 46)])
def test_quantile_regression(rng, quantiles, targets):
    values = rng.normal(0, 2, (7, quantiles)).astype(np.float32)
    samples = rng.normal(0, 2, (7, targets)).astype(np.float32)
    weight = rng.uniform(0.5, 1, 7).astype(np.float32)
    found = quantile_loss(values, samples, weight)

    tensor = torch.tensor(values, requires_grad=True)
    total = 0.0
    for row in range(7):  # as it is written in the paper, pair by pair
        for i in range(quantiles):
            tau = (2 * i + 1) / (2 * quantiles)
            for j in range(targets):
                u = float(samples[row, j]) - tensor[row, i]
                huber = 0.5 * u**2 if abs(u.item()) <= 1 else abs(u) - 0.5
                side = abs(tau - (1.0 if u.item() < 0 else 0.0))
                total = total + float(weight[row]) * side * huber
    loss = total / (7 * quantiles * targets)
    loss.backward()
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(found.dvalues, tensor.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("copies", [2, 5])
def test_a_loss_does_not_depend_on_the_size_of_the_batch(rng, copies):
    values, targets = (rng.normal(size=(4, n)).astype(np.float32) for n in (3, 6))
    weight = np.ones(4, np.float32)
    once = quantile_loss(values, targets, weight)
    often = quantile_loss(
        *(np.repeat(x, copies, axis=0) for x in (values, targets)), np.ones(4 * copies, np.float32)
    )
    assert often.loss == pytest.approx(once.loss, rel=1e-5)
    assert often.dvalues.sum() == pytest.approx(once.dvalues.sum(), rel=1e-4)
