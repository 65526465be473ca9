"""V-trace against slow code that follows the paper's sums, at every kind of end."""

import numpy as np
import pytest

from muster.rl_utils.vtrace import vtrace, vtrace_numpy

BOTH = pytest.mark.parametrize("compute", [vtrace, vtrace_numpy], ids=["kernel", "twin"])


def _some(seed, steps, envs, ends, off_policy=0.7):
    rng = np.random.default_rng(seed)
    reward, final_value = rng.normal(size=(2, steps, envs)).astype(np.float32)
    value = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < ends
    log_ratio = (off_policy * rng.normal(size=(steps, envs))).astype(np.float32)
    return reward, value, terminated, truncated, final_value, log_ratio


def _run(compute, arrays, *numbers):
    target, advantage = np.full((2, *arrays[0].shape), np.nan, np.float32)
    compute(*arrays, *numbers, target, advantage)
    return target, advantage


def _by_definition(
    reward, value, terminated, truncated, final_value, log_ratio, gamma, lam, rho_bar, c_bar, weigh
):
    """Equation 1 of the paper as it stands: a sum of products of c, in float64."""
    steps, envs = reward.shape
    ratio = np.exp(log_ratio.astype(np.float64))
    rho, c = np.minimum(rho_bar, ratio), lam * np.minimum(c_bar, ratio)

    def after(t, i, values):
        if terminated[t, i]:
            return 0.0
        return float(final_value[t, i]) if truncated[t, i] else float(values[t + 1, i])

    targets = np.concatenate([np.zeros((steps, envs)), value[-1:].astype(np.float64)])
    for i in range(envs):
        for s in range(steps):
            total, product = float(value[s, i]), 1.0
            for t in range(s, steps):
                delta = rho[t, i] * (reward[t, i] + gamma * after(t, i, value) - value[t, i])
                total += gamma ** (t - s) * product * delta
                product *= c[t, i]
                if terminated[t, i] or truncated[t, i]:
                    break
            targets[s, i] = total
    gain = np.array(
        [
            [reward[t, i] + gamma * after(t, i, targets) - value[t, i] for i in range(envs)]
            for t in range(steps)
        ]
    )
    return targets[:-1], rho * gain if weigh else gain


@BOTH
@pytest.mark.parametrize("ends", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("steps", "envs"), [(1, 1), (7, 3), (30, 9)])
@pytest.mark.parametrize(
    "numbers",
    [(0.99, 1.0, 1.0, 1.0, True), (0.9, 0.8, 2.0, 0.5, False), (1.0, 0.0, 0.5, 1.0, True)],
)
def test_targets_and_advantages_follow_the_definition(compute, ends, steps, envs, numbers):
    arrays = _some(steps, steps, envs, ends)
    expected = _by_definition(*arrays, *numbers)
    for found, wanted in zip(_run(compute, arrays, *numbers), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@BOTH
def test_on_policy_with_lambda_1_the_target_is_the_n_step_return(compute):
    arrays = _some(3, 12, 5, 0.15, off_policy=0.0)
    reward, value, terminated, truncated, final_value, _ = arrays
    target, advantage = _run(compute, arrays, 0.97, 1.0, 1.0, 1.0, True)
    after = value[-1].astype(np.float64)
    for t in range(11, -1, -1):
        after = np.where(truncated[t], final_value[t], after)
        after = reward[t] + 0.97 * np.where(terminated[t], 0.0, after)
        np.testing.assert_allclose(target[t], after, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(advantage[t], after - value[t], rtol=1e-5, atol=1e-5)


def _one(compute, ends=(), cuts=(), final=6.0, log_ratio=(0.0, 0.0)):
    reward, value = np.array([[1.0], [2.0]], np.float32), np.array([[10.0], [20.0], [40.0]])
    terminated, truncated = (np.isin(np.arange(2), at)[:, None] for at in (ends, cuts))
    final_value = np.full((2, 1), final, np.float32)
    ratio = np.array(log_ratio, np.float32)[:, None]
    arrays = (reward, value.astype(np.float32), terminated, truncated, final_value, ratio)
    return [x[:, 0].tolist() for x in _run(compute, arrays, 0.5, 1.0, 1.0, 1.0, True)]


@BOTH
def test_worked_numbers(compute):
    # The edge of the unroll: 2 + 0.5 * 40 = 22, and 1 + 0.5 * 22 = 12 before it.
    assert _one(compute) == [[12, 22], [2, 2]]
    # Nothing follows a terminated step, even if the final value is something.
    assert _one(compute, ends=[0]) == [[1, 22], [-9, 2]]
    # The true final observation follows a truncated one, not the first of the next episode.
    assert _one(compute, cuts=[0]) == [[1 + 3, 22], [-6, 2]]
    assert _one(compute, cuts=[1]) == [[1 + 2.5, 2 + 3], [-6.5, -15]]
    # Both at once is terminated.
    assert _one(compute, ends=[1], cuts=[1]) == [[2, 2], [-8, -18]]
    # An action that is half as likely now counts half; one that is twice as likely counts once.
    half = float(np.log(np.float32(0.5)))
    target, advantage = _one(compute, log_ratio=(half, -half))
    assert target == pytest.approx([10 + 0.5 * (1 + 10 - 10) + 0.5 * 0.5 * (22 - 20), 22])
    assert advantage == pytest.approx([0.5 * (1 + 0.5 * 22 - 10), 2])


@BOTH
def test_a_ratio_beyond_all_numbers_is_cut_and_nan_comes_through(compute):
    arrays = _some(1, 4, 1, 0.0)
    arrays[-1][:] = 1_000.0
    target, advantage = _run(compute, arrays, 0.9, 1.0, 1.0, 1.0, True)
    assert np.isfinite(target).all() and np.isfinite(advantage).all()
    arrays[-1][2] = np.nan
    target, advantage = _run(compute, arrays, 0.9, 1.0, 1.0, 1.0, True)
    assert np.isnan(target[:3]).all() and np.isfinite(target[3]).all()
    assert np.isnan(advantage[:3]).all() and np.isfinite(advantage[3]).all()


def test_kernel_and_twin_agree_to_rounding():
    arrays = _some(5, 60, 16, 0.05)
    numbers = (0.99, 0.95, 1.0, 1.0, True)
    for ours, theirs in zip(
        _run(vtrace, arrays, *numbers), _run(vtrace_numpy, arrays, *numbers), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
