"""Rules that stop trials."""

import pytest

from muster.tuning.pruning import below_median, outside_top_third

GOOD = [[(10, 5.0 + n), (20, 9.0 + n), (90, 20.0)] for n in range(5)]


def test_the_median_rule_stops_a_trial_that_is_behind():
    assert below_median([(10, 1.0), (20, 2.0)], GOOD, 90)
    assert not below_median([(10, 1.0), (20, 11.5)], GOOD, 90)


def test_the_median_rule_waits_for_two_evaluations_and_five_others():
    assert not below_median([(20, 1.0)], GOOD, 90)
    assert not below_median([(10, 1.0), (20, 1.0)], GOOD[:4], 90)
    assert not below_median([], GOOD, 90)


def test_a_trial_at_its_end_is_not_stopped():
    assert not below_median([(10, 1.0), (90, 1.0)], GOOD, 90)
    assert not outside_top_third([(10, 1.0), (90, 1.0)], GOOD, 90)


@pytest.mark.parametrize(("value", "stops"), [(1.0, True), (8.5, False)])
def test_asha_keeps_the_best_third_at_a_rung(value, stops):
    assert outside_top_third([(10, value)], GOOD, 90) is stops


def test_asha_waits_for_three_trials_at_a_rung():
    assert not outside_top_third([(10, 1.0)], GOOD[:1], 90)
    assert outside_top_third([(10, 1.0)], GOOD[:2], 90)
    assert not outside_top_third([(5, 1.0)], GOOD, 90)
