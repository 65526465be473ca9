"""Statistics over seeds, beside numbers worked out by hand and slow definitions."""

import itertools
import math
import random
import statistics

import numpy as np
import pytest

from muster import OptionError
from muster.report.statistics import (
    bootstrap,
    iqm,
    iqm_band,
    performance_profile,
    probability_of_improvement,
)


@pytest.mark.parametrize(
    ("scores", "mean"),
    [
        ([7.0], 7.0),
        ([1, 2, 6], 3.0),  # a quarter of three, rounded down, is none
        ([100, 2, 4, -100], 3.0),
        ([9, 1, 2, 3, 5], 10 / 3),  # one off each end
        ([[1, 2], [3, 4], [5, 6], [7, 8]], 4.5),  # of all tasks together
    ],
)
def test_the_interquartile_mean_is_that_of_the_middle_half(scores, mean):
    assert iqm(scores) == pytest.approx(mean)


def test_the_interquartile_mean_is_that_of_scipy_and_of_a_slow_definition():
    trim_mean = pytest.importorskip("scipy.stats").trim_mean  # which rliable calls
    rng = np.random.default_rng(1)
    for runs in range(1, 30):
        scores = rng.normal(size=(runs, 3))
        assert iqm(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None))
        ordered = sorted(scores.ravel())
        cut = math.floor(len(ordered) * 0.25)
        assert iqm(scores) == pytest.approx(statistics.fmean(ordered[cut : len(ordered) - cut]))
        assert iqm(scores, axis=0) == pytest.approx(trim_mean(scores, 0.25, axis=0))


def test_the_probability_of_improvement_counts_pairs_and_a_tie_as_half():
    assert probability_of_improvement([1, 2, 3], [0, 2]) == pytest.approx((1 + 1.5 + 2) / 6)
    assert probability_of_improvement([5, 6], [1]) == 1.0
    assert probability_of_improvement([1, 1], [1, 1]) == 0.5
    x, y = np.random.default_rng(2).integers(0, 5, size=(2, 7, 3)).astype(float)
    pairs = [
        statistics.fmean(
            (a > b) + (a == b) / 2 for a, b in itertools.product(x[:, task], y[:, task])
        )
        for task in range(3)
    ]
    assert probability_of_improvement(x, y) == pytest.approx(statistics.fmean(pairs))


def test_the_probability_of_improvement_is_that_of_the_mann_whitney_test():
    stats = pytest.importorskip("scipy.stats")
    x, y = np.random.default_rng(3).normal(size=(2, 9))
    expected = stats.mannwhitneyu(x, y).statistic / 81
    assert probability_of_improvement(x, y) == pytest.approx(expected)


def test_a_performance_profile_is_the_share_of_runs_above_each_threshold():
    assert list(performance_profile([[1, 2], [3, 4]], [0, 1, 2.5, 4])) == [1, 0.75, 0.5, 0]


def test_an_interval_is_seeded_and_near_that_of_a_slow_bootstrap():
    scores = [3.0, 5.0, 6.0, 9.0, 10.0, 14.0, 15.0, 21.0]
    found = bootstrap(iqm, scores)
    assert found == bootstrap(iqm, scores) != bootstrap(iqm, scores, seed=1)
    draw = random.Random(4)
    slow = sorted(statistics.fmean(sorted(draw.choices(scores, k=8))[2:6]) for _ in range(20_000))
    assert found.low == pytest.approx(slow[500], abs=0.5)
    assert found.high == pytest.approx(slow[-500], abs=0.5)


def test_runs_are_resampled_within_their_task():
    """Drawn across tasks, a mean over two tasks far apart would not stay where it is."""
    scores = np.array([[0.0, 1000.0], [0.0, 1000.0], [0.0, 1000.0]])
    assert bootstrap(np.mean, scores, repetitions=200) == (500.0, 500.0)


def test_a_95_percent_interval_holds_the_truth_about_so_often():
    rng = np.random.default_rng(5)
    held = 0
    for trial in range(100):
        low, high = bootstrap(np.mean, rng.normal(size=20), repetitions=100, seed=trial)
        held += low <= 0 <= high
    assert 0.86 <= held / 100 <= 0.99


def test_a_band_is_the_interval_at_each_point():
    curves = np.random.default_rng(6).normal([0, 10, 20, 30], size=(6, 4))
    middle, low, high = iqm_band(curves, repetitions=2_000)
    for point in range(4):
        one = bootstrap(iqm, curves[:, point])
        assert middle[point] == pytest.approx(iqm(curves[:, point]))
        assert (low[point], high[point]) == pytest.approx(one, abs=0.15)


@pytest.mark.parametrize("scores", [[], [1.0, math.nan], [math.inf], 3.0])
def test_scores_that_have_no_statistics_are_refused(scores):
    with pytest.raises(OptionError, match="have no statistics"):
        iqm(scores)


def test_a_confidence_beyond_one_and_other_tasks_are_refused():
    with pytest.raises(OptionError, match="confidence=95 is not possible"):
        bootstrap(iqm, [1.0, 2.0], confidence=95)
    with pytest.raises(OptionError, match="of 1 and of 2 tasks"):
        probability_of_improvement([1.0], [[1.0, 2.0]])
