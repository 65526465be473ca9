"""Losses of critics against plain autograd."""

import numpy as np
import pytest
import torch

from muster.rl_utils.losses.critics import quantile_loss, squared_loss


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_squared_errors(rng):
    values, target, weight = (rng.normal(size=n).astype(np.float32) for n in ((9, 3, 1), 9, 9))
    found = squared_loss(values, target, weight, 9)
    tensor = torch.tensor(values, requires_grad=True)
    error = tensor[:, :, 0] - torch.from_numpy(target)[:, None]
    losses = 0.5 * (torch.from_numpy(weight)[:, None] * error**2).mean(0)  # of each critic
    losses.sum().backward()
    assert found.loss == pytest.approx(losses.mean().item(), rel=1e-5)
    np.testing.assert_allclose(found.dvalues, tensor.grad, rtol=1e-5, atol=1e-7)
    errors = (values[:, :, 0] - target[:, None]).mean(axis=1)
    np.testing.assert_allclose(found.td_error, errors, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("quantiles", "targets"), [(1, 1), (5, 3), (25, 46)])
def test_quantile_regression(rng, quantiles, targets):
    values = rng.normal(0, 2, (7, 2, quantiles)).astype(np.float32)
    samples = rng.normal(0, 2, (7, targets)).astype(np.float32)
    weight = rng.uniform(0.5, 1, 7).astype(np.float32)
    found = quantile_loss(values, samples, weight, 7)

    tensor = torch.tensor(values, requires_grad=True)
    total = 0.0
    for row, critic, i in np.ndindex(values.shape):  # as it is in the paper, pair by pair
        tau = (2 * i + 1) / (2 * quantiles)
        for j in range(targets):
            u = float(samples[row, j]) - tensor[row, critic, i]
            huber = 0.5 * u**2 if abs(u.item()) <= 1 else abs(u) - 0.5
            side = abs(tau - (1.0 if u.item() < 0 else 0.0))
            total = total + float(weight[row]) * side * huber
    loss = total / (7 * quantiles * targets)  # of both critics together
    loss.backward()
    assert found.loss == pytest.approx(loss.item() / 2, rel=1e-5)
    np.testing.assert_allclose(found.dvalues, tensor.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("loss", [quantile_loss, squared_loss])
def test_shares_of_a_batch_add_up_to_the_whole(rng, loss):
    outputs = 3 if loss is quantile_loss else 1
    values = rng.normal(size=(10, 2, outputs)).astype(np.float32)
    target = rng.normal(size=(10, 6) if loss is quantile_loss else 10).astype(np.float32)
    weight = rng.uniform(0.5, 1, 10).astype(np.float32)
    whole = loss(values, target, weight, 10)
    parts = [slice(0, 3), slice(3, 10)]
    shares = [loss(values[rows], target[rows], weight[rows], 10) for rows in parts]
    assert sum(each.loss for each in shares) == pytest.approx(whole.loss, rel=1e-6)
    for name in ("dvalues", "td_error"):
        joined = np.concatenate([getattr(each, name) for each in shares])
        assert np.array_equal(joined, getattr(whole, name))
