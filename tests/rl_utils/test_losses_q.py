"""Epsilon-greedy actions and the loss of Q-learning: kernels, twins, and torch."""

import numpy as np
import pytest
import torch

from muster.rl_utils.illegal import ILLEGAL
from muster.rl_utils.losses.q import (
    BEST,
    exploration,
    explore_or_best,
    explore_or_best_numpy,
    q_loss,
    q_loss_numpy,
)

LOSSES = pytest.mark.parametrize("compute", [q_loss, q_loss_numpy], ids=["kernel", "twin"])
CHOICES = pytest.mark.parametrize(
    "choose", [explore_or_best, explore_or_best_numpy], ids=["kernel", "twin"]
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@CHOICES
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("actions", [1, 2, 7])
def test_random_actions_are_as_often_as_epsilon_says_and_all_alike(rng, choose, epsilon, actions):
    noise = exploration(rng.random((200_000, 1), np.float32), epsilon)
    assert noise.dtype == np.float32
    np.testing.assert_allclose((noise == BEST).mean(), 1 - epsilon, atol=0.005)
    drawn = np.full((len(noise), 1), -7)
    choose(np.zeros((len(noise), actions), np.float32), noise, drawn)
    counts = np.bincount(drawn[noise != BEST], minlength=actions) / len(noise)
    np.testing.assert_allclose(counts, epsilon / actions, atol=0.005)


@CHOICES
def test_random_actions_are_legal_and_all_legal_ones_alike(rng, choose):
    outputs = np.where([True, False, True, False, True], 0.0, ILLEGAL).astype(np.float32)
    noise = exploration(rng.random((200_000, 1), np.float32), 1.0)
    drawn = np.full((len(noise), 1), -7)
    choose(np.repeat(outputs[None], len(noise), axis=0), noise, drawn)
    counts = np.bincount(drawn[:, 0], minlength=5) / len(noise)
    np.testing.assert_allclose(counts, [1 / 3, 0, 1 / 3, 0, 1 / 3], atol=0.005)
    assert counts[1] == counts[3] == 0


@CHOICES
def test_nothing_is_random_without_epsilon_and_no_action_is_beyond_the_last(choose):
    assert set(exploration(np.zeros(5, np.float32), 0.0)) == {BEST}
    below = np.nextafter(np.float32(0.3), np.float32(0))
    action = np.full((1, 1), -7)
    choose(np.zeros((1, 3), np.float32), exploration(np.array([[below]]), 0.3), action)
    assert action.tolist() == [[2]]


@CHOICES
def test_the_best_action_is_taken_unless_the_noise_names_one(choose):
    outputs = np.array([[1, 3, 2], [1, 3, 2], [5, 5, 1], [1, np.nan, 9]], np.float32)
    noise = np.array([[BEST], [0.9], [BEST], [BEST]], np.float32)
    action = np.full((4, 1), -7)
    choose(outputs, noise, action)
    assert action[:, 0].tolist() == [1, 2, 0, 1]  # the first of equals; NaN is not hidden


@LOSSES
@pytest.mark.parametrize("actions", [1, 2, 18])
def test_the_derivative_is_that_of_autograd(rng, compute, actions):
    outputs = rng.normal(size=(30, actions)).astype(np.float32)
    rows = rng.permutation(50)[:30]
    action = rng.integers(0, actions, (50, 1))
    target = rng.normal(size=50).astype(np.float32)
    d_outputs, stats = np.full_like(outputs, np.nan), np.array([10.0, 0, 0])
    assert compute(outputs, rows, action, target, 0.25, d_outputs, stats) == -1
    q = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    error = q[torch.arange(30), action[rows, 0]] - torch.from_numpy(target[rows])
    loss = 0.25 * 0.5 * (error**2).sum()
    loss.backward()
    np.testing.assert_allclose(d_outputs, q.grad, rtol=1e-5, atol=1e-7)
    error = error.detach().numpy()
    wanted = [10 + loss.item(), 0.25 * (error + target[rows]).sum(), 0.25 * abs(error).sum()]
    np.testing.assert_allclose(stats, wanted, rtol=1e-5)


@LOSSES
def test_rows_and_actions_that_do_not_exist_are_named(compute):
    outputs, target = np.zeros((3, 2), np.float32), np.zeros(4, np.float32)
    for rows, action in (([0, 9, 1], [0, 0, 0, 0]), ([0, 1, 2], [0, 2, 0, 0])):
        actions = np.array(action)[:, None]
        arrays = np.zeros_like(outputs), np.zeros(3)
        assert compute(outputs, np.array(rows), actions, target, 1.0, *arrays) == 1


@LOSSES
def test_what_is_not_finite_comes_through(compute):
    outputs, d_outputs, stats = np.full((1, 2), np.nan, np.float32), np.zeros((1, 2)), np.zeros(3)
    d_outputs = d_outputs.astype(np.float32)
    compute(
        outputs,
        np.array([0]),
        np.zeros((1, 1), int),
        np.zeros(1, np.float32),
        1.0,
        d_outputs,
        stats,
    )
    assert np.isnan(d_outputs[0, 0]) and np.isnan(stats).all()
