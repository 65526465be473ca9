"""Golden numbers for n-step sums and the targets of Q-learning, computed by hand."""

import numpy as np
import pytest

from muster import OptionError
from muster.rl_utils import n_step, td_targets
from muster.rl_utils.returns import n_step_targets

NEXT_Q = np.array([[1.0, 3.0], [5.0, 2.0], [-1.0, -2.0]])
ONLINE = np.array([[9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
REWARD = np.array([1.0, 10.0, 0.5])
DISCOUNT = np.array([0.9, 0.0, 0.5])


def test_a_target_is_the_reward_and_the_discounted_best_value():
    assert td_targets(REWARD, DISCOUNT, NEXT_Q) == pytest.approx([3.7, 10.0, 0.0])


def test_double_learning_values_the_action_that_the_other_network_prefers():
    assert td_targets(REWARD, DISCOUNT, NEXT_Q, ONLINE) == pytest.approx([1.9, 10.0, -0.5])


def test_equal_values_count_once_and_the_first_action_is_taken():
    tied = np.array([[7.0, 7.0]])
    assert td_targets(np.zeros(1), np.ones(1), np.array([[1.0, 2.0]]), tied) == [1.0]


def test_targets_keep_the_precision_they_are_given():
    single = [x.astype(np.float32) for x in (REWARD, DISCOUNT, NEXT_Q)]
    assert td_targets(*single).dtype == np.float32


def _ends(size, *at):
    ends = np.zeros(size, np.bool_)
    ends[list(at)] = True
    return ends


@pytest.mark.parametrize(
    ("n", "sums", "discounts", "steps"),
    [
        (1, [1, 2, 4, 8], [0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1]),
        (2, [2, 4, 8, 8], [0.25, 0.25, 0.25, 0.5], [2, 2, 2, 1]),
        (3, [3, 6, 8, 8], [0.125, 0.125, 0.25, 0.5], [3, 3, 2, 1]),
        (9, [4, 6, 8, 8], [0.0625, 0.125, 0.25, 0.5], [4, 3, 2, 1]),
    ],
)
def test_a_sum_goes_over_n_steps_or_to_the_end_of_the_data(n, sums, discounts, steps):
    got = n_step(np.array([1.0, 2, 4, 8]), _ends(4), _ends(4), 0.5, n)
    assert [x.tolist() for x in got] == [sums, discounts, steps]


def test_a_terminated_step_ends_the_sum_and_nothing_follows():
    got = n_step(np.array([1.0, 2, 4, 8]), _ends(4, 1), _ends(4), 0.5, 3)
    assert [x.tolist() for x in got] == [[2, 2, 8, 8], [0, 0, 0.25, 0.5], [2, 1, 2, 1]]


def test_a_truncated_step_ends_the_sum_but_its_final_observation_counts():
    got = n_step(np.array([1.0, 2, 4, 8]), _ends(4), _ends(4, 1), 0.5, 3)
    assert [x.tolist() for x in got] == [[2, 2, 8, 8], [0.25, 0.5, 0.25, 0.5], [2, 1, 2, 1]]


def test_terminated_wins_where_both_are_set():
    _, discounts, _ = n_step(np.array([1.0]), _ends(1, 0), _ends(1, 0), 0.5, 1)
    assert discounts.tolist() == [0]


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_than_one_step_is_refused(n):
    with pytest.raises(OptionError, match=f"n={n} is not possible"):
        n_step(np.ones(2), _ends(2), _ends(2), 0.9, n)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_n_step_targets_of_many_environments_are_the_sums_and_what_follows_them(n):
    rng = np.random.default_rng(n)
    reward, after = rng.normal(size=(2, 30, 5))
    terminated, truncated = rng.random((2, 30, 5)) < 0.15
    found = n_step_targets(reward, terminated, truncated, after, 0.9, n)
    for env in range(5):
        ends = terminated[:, env], truncated[:, env]
        total, discount, steps = n_step(reward[:, env], *ends, 0.9, n)
        expected = total + discount * after[np.arange(30) + steps - 1, env]
        np.testing.assert_allclose(found[:, env], expected, rtol=1e-12)


def test_n_step_targets_leave_their_arguments_as_they_are():
    ends = np.zeros((4, 2), np.bool_)
    n_step_targets(np.ones((4, 2)), ends, ends, np.ones((4, 2)), 0.9, 3)
    assert not ends.any()
