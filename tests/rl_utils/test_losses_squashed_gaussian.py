"""Squashed Gaussian actions against mpmath and plain autograd."""

import mpmath
import numpy as np
import pytest
import torch

from muster.rl_utils.losses import squashed_gaussian
from muster.rl_utils.losses.squashed_gaussian import HIGHEST_LOG_STD, LOWEST_LOG_STD

MEANS = [0.0, 0.3, -2.0, 8.9, -9.2, 30.0, 1e4]
LOG_STDS = [-20.0, -5.0, 0.0, 1.9]
NOISES = [0.0, 1.0, -2.5]


def exact_logp(mean, log_std, noise):
    """The logarithm of the density, with 60 digits: by the definition, not by the stable form."""
    with mpmath.workdps(60):
        mean, log_std, noise = (mpmath.mpf(float(x)) for x in (mean, log_std, noise))
        std = mpmath.exp(log_std)
        u = mean + std * noise
        gaussian = -(noise**2) / 2 - log_std - mpmath.log(2 * mpmath.pi) / 2
        # 1 - tanh^2 = sech^2, of which nothing is lost however large u is.
        return float(gaussian - mpmath.log(mpmath.sech(u) ** 2))


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("log_std", LOG_STDS)
@pytest.mark.parametrize("noise", NOISES)
def test_the_density_is_that_of_mpmath_also_where_tanh_is_1(mean, log_std, noise):
    outputs = np.array([[mean, log_std]], np.float32)
    drawn = squashed_gaussian.draw(outputs, np.array([[noise]], np.float32))
    assert drawn.logp.shape == (1,) and drawn.logp.dtype == np.float32
    wanted = exact_logp(*outputs[0], np.float32(noise))
    assert drawn.logp[0] == pytest.approx(wanted, rel=2e-6, abs=2e-5)


def test_numbers_of_an_action_are_independent_of_each_other():
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(5, 6)).astype(np.float32)
    noise = rng.normal(size=(5, 3)).astype(np.float32)
    drawn = squashed_gaussian.draw(outputs, noise)
    assert drawn.action.shape == (5, 3) and drawn.logp.shape == (5,)
    for row in range(5):
        wanted = sum(
            exact_logp(outputs[row, k], outputs[row, 3 + k], noise[row, k]) for k in range(3)
        )
        assert drawn.logp[row] == pytest.approx(wanted, rel=1e-5)


def test_the_best_action_is_that_of_the_mean():
    outputs = np.array([[0.5, -1.0, 0.0, 3.0]], np.float32)
    assert squashed_gaussian.best(outputs) == pytest.approx(np.tanh([[0.5, -1.0]]))


@pytest.mark.parametrize("seed", range(5))
def test_what_goes_back_is_what_autograd_finds(seed):
    rng = np.random.default_rng(seed)
    outputs = rng.normal(0, 2, (64, 6)).astype(np.float32)
    outputs[0, 3:] = [HIGHEST_LOG_STD + 1, LOWEST_LOG_STD - 1, 0.0]
    noise, by_action = (rng.normal(size=(64, 3)).astype(np.float32) for _ in range(2))
    by_logp = rng.normal(size=64).astype(np.float32)
    drawn = squashed_gaussian.draw(outputs, noise)
    found = squashed_gaussian.backward(drawn, by_action, by_logp)

    tensor = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    mean, raw = tensor.chunk(2, dim=1)
    log_std = raw.clamp(LOWEST_LOG_STD, HIGHEST_LOG_STD)
    u = mean + log_std.exp() * torch.from_numpy(noise).double()
    normal = torch.distributions.Normal(mean, log_std.exp())
    correction = 2 * (np.log(2) - u - torch.nn.functional.softplus(-2 * u))
    logp = (normal.log_prob(u) - correction).sum(1)
    loss = (torch.from_numpy(by_action) * u.tanh()).sum() + (torch.from_numpy(by_logp) * logp).sum()
    loss.backward()
    np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=2e-4, atol=2e-5)
    assert found.dtype == np.float32
    assert (found[0, 3:5] == 0).all(), "beyond its bounds, a spread is not learnt"


def test_a_saturated_action_gives_a_finite_gradient():
    outputs = np.array([[50.0, 2.0], [-80.0, 2.0]], np.float32)
    drawn = squashed_gaussian.draw(outputs, np.zeros((2, 1), np.float32))
    back = squashed_gaussian.backward(drawn, np.ones((2, 1), np.float32), np.ones(2, np.float32))
    assert np.isfinite(drawn.logp).all() and np.isfinite(back).all()
    assert back[:, 0] == pytest.approx([2.0, -2.0]), "entropy still pulls it back"
