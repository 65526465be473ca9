"""Versions and gradients: what a ledger accepts, once, and whom it makes wait."""

import pytest

from muster.errors import OptionError, TaskError
from muster.flow.ledger import LagCount, VersionLedger


def test_versions_only_rise_and_gradients_make_them():
    ledger = VersionLedger(5)
    assert ledger.next() == 6
    assert ledger.join(0, incarnation=1) == 6
    assert ledger.accept(0, 1, sequence=1, version=6)
    assert ledger.applied(0) == ledger.version == 7


def test_gradients_that_come_again_are_accepted_once():
    ledger = VersionLedger()
    assert [ledger.accept(0, 1, number, 0) for number in (1, 1, 2, 1, 2, 3)] == [
        True, False, True, False, False, True
    ]  # fmt: skip
    assert ledger.counts()["repeated"] == 3


def test_a_gap_and_an_earlier_life_are_refused_and_a_later_life_counts_anew():
    ledger = VersionLedger()
    assert ledger.accept(0, 1, 1, 0)
    with pytest.raises(TaskError, match="gradients 3 of learner 0 arrived after 1"):
        ledger.accept(0, 1, 3, 0)
    assert ledger.accept(0, 2, 1, 0)
    with pytest.raises(TaskError, match="learner 0 was replaced"):
        ledger.accept(0, 1, 2, 0)


def test_nobody_is_applied_who_would_make_anothers_gradient_too_old():
    ledger = VersionLedger(max_lag=2)
    for learner in (0, 1):
        ledger.join(learner, 1)
    for number in (1, 2):
        assert ledger.accept(1, 1, number, ledger.version) and ledger.may_apply(1)
        ledger.applied(1)
    assert ledger.accept(1, 1, 3, ledger.version) and not ledger.may_apply(1)
    assert ledger.accept(0, 1, 1, 0) and ledger.may_apply(0)
    ledger.applied(0)
    assert ledger.may_apply(1), "the slow one has been applied, with a lag of 2"
    assert ledger.counts()["lag_max"] == 2 and ledger.counts()["applied"] == {1: 2, 0: 1}
    ledger.leave(0, 1)
    for _ in range(9):
        ledger.applied(1)
    assert ledger.may_apply(1), "nobody waits for a learner that has left"
    with pytest.raises(OptionError, match="max_lag=2 is not possible with 4 learners"):
        for learner in (2, 3, 4):
            ledger.join(learner, 1)


def test_lags_are_counted_by_least_mean_and_most():
    lags = LagCount()
    assert (lags.least, lags.mean, lags.most) == (0, 0.0, 0)
    lags.add(3, 4.0, 5)
    lags.add(1, 2.0, 9)
    assert (lags.least, lags.mean, lags.most) == (1, 3.0, 9)
