"""Advantages against slow code that follows the definition, at every kind of end."""

import numpy as np
import pytest

from muster.rl_utils.gae import gae, gae_numpy

BOTH = pytest.mark.parametrize("compute", [gae, gae_numpy], ids=["kernel", "twin"])


def _some(seed, steps, envs, ends):
    rng = np.random.default_rng(seed)
    reward, final_value = rng.normal(size=(2, steps, envs)).astype(np.float32)
    value = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < ends
    return reward, value, terminated, truncated, final_value


def _by_definition(reward, value, terminated, truncated, final_value, gamma, lam):
    """Sum (gamma * lam)^k * delta_{t+k} up to the end of episode or fragment, in float64."""
    steps, envs = reward.shape
    advantage = np.zeros((steps, envs))
    for i in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                after = float(value[k + 1, i])
                if truncated[k, i]:
                    after = float(final_value[k, i])
                if terminated[k, i]:
                    after = 0.0
                advantage[t, i] += weight * (reward[k, i] + gamma * after - value[k, i])
                weight *= gamma * lam
                if terminated[k, i] or truncated[k, i]:
                    break
    return advantage


@BOTH
@pytest.mark.parametrize("ends", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("steps", "envs"), [(1, 1), (7, 3), (40, 17)])
@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_advantages_follow_the_definition(compute, ends, steps, envs, gamma, lam):
    arrays = _some(steps, steps, envs, ends)
    advantage = np.full((steps, envs), np.nan, np.float32)
    compute(*arrays, gamma, lam, advantage, 0, envs)
    expected = _by_definition(*arrays, gamma, lam)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)


def _one_env(compute, reward, value, gamma, lam, terminated=(), truncated=(), final=0.0):
    steps = len(reward)
    columns = [np.array(x, np.float32)[:, None] for x in (reward, value)]
    ends = [np.isin(np.arange(steps), at)[:, None] for at in (terminated, truncated)]
    advantage = np.zeros((steps, 1), np.float32)
    final_value = np.full((steps, 1), final, np.float32)
    compute(*columns, *ends, final_value, gamma, lam, advantage, 0, 1)
    return advantage[:, 0].tolist()


@BOTH
def test_worked_numbers(compute):
    two = [1, 2], [10, 20, 40]
    assert _one_env(compute, *two, 0.5, 0.5) == [1 + 10 - 10 + 0.25 * 2, 2 + 20 - 20]
    # Nothing follows a terminated step, even if the final value is something.
    assert _one_env(compute, *two, 0.5, 0.5, terminated=[0], final=99) == [1 - 10, 2]
    # The true final observation follows a truncated one, not the first of the next episode.
    assert _one_env(compute, *two, 0.5, 0.5, truncated=[0], final=6) == [1 + 3 - 10, 2]
    assert _one_env(compute, *two, 0.5, 0.5, truncated=[1], final=6)[1] == 2 + 3 - 20
    # Both at once is terminated.
    both = _one_env(compute, *two, 0.5, 0.5, terminated=[1], truncated=[1], final=6)
    assert both[1] == 2 - 20


@BOTH
def test_some_columns_are_as_all_of_them_and_others_stay(compute):
    arrays = _some(3, 20, 12, 0.1)
    whole = np.zeros((20, 12), np.float32)
    compute(*arrays, 0.99, 0.95, whole, 0, 12)
    for first, last in [(0, 5), (5, 6), (4, 12), (3, 3)]:
        part = np.full((20, 12), 7, np.float32)
        compute(*arrays, 0.99, 0.95, part, first, last)
        assert np.array_equal(part[:, first:last], whole[:, first:last])
        assert (part[:, :first] == 7).all() and (part[:, last:] == 7).all()


def test_kernel_and_twin_give_the_same_bits():
    arrays = _some(5, 100, 16, 0.05)
    ours, theirs = np.zeros((2, 100, 16), np.float32)
    gae(*arrays, 0.99, 0.95, ours, 0, 16)
    gae_numpy(*arrays, 0.99, 0.95, theirs, 0, 16)
    assert np.array_equal(ours, theirs)


@BOTH
def test_nan_comes_through_up_to_the_end_of_its_episode(compute):
    reward, value, terminated, truncated, final_value = _some(6, 10, 1, 0.0)
    reward[7] = np.nan
    terminated[3] = True
    truncated[8] = True
    final_value[:8] = np.nan  # not read
    advantage = np.zeros((10, 1), np.float32)
    compute(reward, value, terminated, truncated, final_value, 0.99, 0.95, advantage, 0, 1)
    assert np.flatnonzero(np.isnan(advantage)).tolist() == [4, 5, 6, 7]


def test_slots_do_not_compile_it_again():
    if gae is gae_numpy:
        pytest.skip("numba cannot compile here")
    for envs in (1, 4, 8):
        arrays = _some(0, 6, envs, 0.1)
        gae(*arrays, 0.99, 0.95, np.zeros((6, envs), np.float32), envs // 2, envs)
    assert len(gae.signatures) == 1
