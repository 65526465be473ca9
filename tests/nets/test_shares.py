"""Shares of a batch: all rows in some share, and sums in the order of shares."""

import threading

import numpy as np
import pytest

from muster.nets.shares import SharesInTurn, SideBySide, rows_of_shares


@pytest.mark.parametrize(("rows", "shares"), [(64, 4), (30, 4), (3, 4), (1, 1), (7, 7), (5, 2)])
def test_every_row_is_in_one_share_and_shares_are_alike(rows, shares):
    parts = rows_of_shares(rows, shares)
    assert [k for part in parts for k in range(part.start, part.stop)] == list(range(rows))
    sizes = [part.stop - part.start for part in parts]
    assert len(parts) == min(rows, shares) and min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shares", [SharesInTurn(3), SideBySide(3, 1), SideBySide(3, 2)])
def test_gradients_are_added_in_the_order_of_shares(shares):
    # In another order 1e8 swallows the 1 that it does not swallow in this one.
    values = np.array([1e8, -1e8, 1], np.float32)
    gradients = [np.zeros(2, np.float32) for _ in range(3)]

    def call(share):
        gradients[share][:] = values[share]
        return share, threading.current_thread().name

    found = shares(call, 3, gradients)
    assert [share for share, _ in found] == [0, 1, 2]
    assert gradients[0].tolist() == [1, 1]


def test_a_share_that_fails_is_heard_when_all_have_ended():
    ended = []

    def call(share):
        if share == 0:
            raise ValueError("no")
        ended.append(share)
        return (share,)

    with pytest.raises(ValueError, match="no"):
        SideBySide(2, 2)(call, 2, [np.zeros(1), np.zeros(1)])
    assert ended == [1]
