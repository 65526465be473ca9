"""Adam on a flat vector against torch's, with and without clipping."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from muster import OptionError
from muster.nets import Adam, ModelError
from muster.nets import adam as kernels


@pytest.mark.parametrize("max_norm", [None, 1e9, 3.0, 0.01])
@pytest.mark.parametrize("step", [kernels.adam, kernels.adam_numpy])
def test_fifty_steps_are_those_of_torch(rng, monkeypatch, step, max_norm):
    monkeypatch.setattr(kernels, "adam", step)
    start = rng.normal(size=1003).astype(np.float32)
    weights, reference = start.copy(), nn.Parameter(torch.from_numpy(start.copy()))
    mine = Adam(weights, 1e-2, betas=(0.8, 0.99), eps=1e-6)
    theirs = torch.optim.Adam([reference], 1e-2, betas=(0.8, 0.99), eps=1e-6)
    for _ in range(50):
        grad = (rng.normal(size=1003) * rng.choice([1e-3, 1, 10])).astype(np.float32)
        reference.grad = torch.from_numpy(grad.copy())
        limit = math.inf if max_norm is None else max_norm
        norm = nn.utils.clip_grad_norm_([reference], limit).item()
        theirs.step()
        assert mine.step(grad, max_norm) == pytest.approx(norm, rel=1e-5)
    np.testing.assert_allclose(weights, reference.detach().numpy(), rtol=1e-5, atol=2e-6)


def test_the_first_step_goes_by_the_learning_rate():
    weights = np.zeros(3, np.float32)
    assert Adam(weights, 0.5).step(np.array([3, -4, 0], np.float32)) == pytest.approx(5)
    assert weights == pytest.approx([-0.5, 0.5, 0])


def test_the_learning_rate_may_be_changed():
    weights = np.zeros(1, np.float32)
    adam = Adam(weights, 0.5)
    adam.lr = 2
    adam.step(np.ones(1, np.float32))
    assert weights == pytest.approx([-2])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", [kernels.adam, kernels.adam_numpy])
def test_a_gradient_that_is_not_finite_changes_nothing(monkeypatch, step, bad):
    monkeypatch.setattr(kernels, "adam", step)
    weights = np.ones(40, np.float32)
    adam = Adam(weights, 0.5)
    adam.step(np.ones(40, np.float32))
    before, state = weights.copy(), adam.state_dict()
    grad = np.ones(40, np.float32)
    grad[17] = bad
    assert not math.isfinite(adam.step(grad, 1.0))
    assert np.array_equal(weights, before)
    after = adam.state_dict()
    assert all(np.array_equal(after[name], state[name]) for name in state)


def test_a_large_gradient_is_not_taken_for_an_infinite_one():
    weights = np.zeros(2, np.float32)
    grad = np.array([3e30, 4e30], np.float32)
    assert Adam(weights, 0.5).step(grad, 1.0) == pytest.approx(5e30)
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("step", [kernels.adam, kernels.adam_numpy])
def test_the_means_of_a_dead_weight_become_zero_and_never_subnormal(monkeypatch, step):
    monkeypatch.setattr(kernels, "adam", step)
    weights = np.zeros(40, np.float32)
    adam = Adam(weights, 0.1, betas=(0.5, 0.5))
    adam.step(np.ones(40, np.float32))
    grad = np.zeros(40, np.float32)
    grad[:20] = [1, -1] * 10
    for _ in range(300):
        adam.step(grad)
        state = adam.state_dict()
        for mean in (np.abs(state["mean"]), state["square"]):
            assert not ((mean > 0) & (mean < np.finfo(np.float32).tiny)).any()
    assert not state["mean"][20:].any()
    assert not state["square"][20:].any()
    assert np.abs(state["mean"][:20]) == pytest.approx(np.ones(20))


def test_going_on_from_a_state_is_going_on(rng):
    grads = rng.normal(size=(10, 7)).astype(np.float32)
    weights = np.zeros(7, np.float32)
    adam = Adam(weights, 0.1)
    for grad in grads[:5]:
        adam.step(grad)
    again = weights.copy()
    other = Adam(again, 0.1)
    other.load_state_dict(adam.state_dict())
    for grad in grads[5:]:
        adam.step(grad)
        other.step(grad)
    assert np.array_equal(weights, again)


def test_what_does_not_fit_is_refused():
    adam = Adam(np.zeros(3, np.float32), 0.1)
    with pytest.raises(OptionError, match=r"the gradient has shape \(4,\)"):
        adam.step(np.zeros(4, np.float32))
    with pytest.raises(ModelError, match=r"'mean' has shape \(4,\)"):
        adam.load_state_dict(Adam(np.zeros(4, np.float32), 0.1).state_dict())


@pytest.mark.parametrize(
    "options",
    [{"lr": 0}, {"lr": math.nan}, {"lr": 1, "betas": (1, 0.9)}, {"lr": 1, "betas": (0.9, 1.0)},
     {"lr": 1, "eps": 0}, {"lr": -1}, {"lr": math.inf}],
)  # fmt: skip
def test_senseless_options_are_refused(options):
    with pytest.raises(OptionError, match="is not possible"):
        Adam(np.zeros(1, np.float32), **options)
