"""The arithmetic of replay in shards: K of them draw what one buffer would have drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data.shard_book import ShardBook
from muster.data.shards import Turns, global_weights, locate, positions
from muster.data.sum_tree import SumTree
from muster.errors import OptionError

priorities = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 64.0]), max_size=8), min_size=1, max_size=5
).filter(lambda shards: any(value for shard in shards for value in shard))


def tree_of(values):
    tree = SumTree(max(1, len(values)))
    tree.load(np.array(values or [0.0]))
    return tree


@settings(deadline=None)
@given(priorities, st.integers(0, 2**32), st.integers(1, 50), st.booleans())
def test_shards_draw_the_very_items_that_one_tree_of_all_would(shards, seed, count, stratified):
    where = positions(count, np.random.default_rng(seed), stratified)
    trees = [tree_of(values) for values in shards]
    masses = [tree.total for tree in trees]
    shard, within = locate(where, masses)
    firsts = np.cumsum([0, *(len(values) for values in shards)])
    drawn = []
    for which, part in zip(shard, within, strict=True):
        leaf, value = trees[which].find(np.array([part * masses[which]]))
        assert value[0] > 0
        drawn.append(firsts[which] + leaf[0])
    # All values are sums of powers of two but for the 3s: the one tree rounds nothing either.
    whole = tree_of([value for values in shards for value in values])
    leaf, _ = whole.find(where * whole.total)
    differ = np.flatnonzero(leaf != drawn)
    # At a border between two items the division by a shard's mass may round to its other side.
    borders = np.cumsum([value for values in shards for value in values])
    for row in differ:
        assert np.abs(borders - where[row] * whole.total).min() < 1e-9 * whole.total


@settings(deadline=None)
@given(priorities, st.integers(0, 2**32), st.floats(0, 1))
def test_the_weights_over_all_shards_are_those_of_one_buffer(shards, seed, beta):
    masses = np.array([sum(values) for values in shards])
    rng = np.random.default_rng(seed)
    rows = [
        (number, value)
        for number, values in enumerate(shards)
        for value in values
        if value and rng.random() < 0.7
    ]
    if not rows:
        return
    shard, value = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    weight = global_weights(shard, value / masses[shard], masses, beta)
    assert weight.dtype == np.float32
    np.testing.assert_allclose(weight, (value.min() / value) ** beta, rtol=1e-6)


def test_a_mass_that_changed_after_the_split_is_weighed_by_how_it_was_drawn():
    # Both shards held 1 when the batch was split; the second had grown to 4 when it drew.
    weight = global_weights(np.array([0, 1]), np.array([1.0, 0.25]), [1.0, 1.0], 1.0)
    np.testing.assert_allclose(weight, [0.25, 1.0])


def split(size, masses, rng):
    """Return how many rows of a prioritized batch each shard is asked for."""
    asked = ShardBook(len(masses), True, rng).ask((size,), masses)
    return np.bincount(asked.shard, minlength=len(masses))


@settings(deadline=None)
@given(
    # A mass is 0 or a sum of priorities: shares of denormals are no exact numbers.
    st.lists(st.just(0.0) | st.floats(1e-30, 1e6), min_size=1, max_size=6).filter(any),
    st.integers(0, 2**32),
    st.integers(1, 500),
)
def test_a_split_is_complete_and_near_the_masses(masses, seed, size):
    counts = split(size, masses, np.random.default_rng(seed))
    assert counts.sum() == size and counts.shape == (len(masses),)
    assert not counts[np.array(masses) == 0].any()
    assert (np.abs(counts - size * np.array(masses) / sum(masses)) < 2 + 1e-6).all()


def test_splits_are_in_proportion_to_the_masses_on_average():
    rng = np.random.default_rng(0)
    counts = sum(split(10, [1.0, 0.0, 2.0, 4.5], rng) for _ in range(4_000))
    np.testing.assert_allclose(counts / 40_000, np.array([1, 0, 2, 4.5]) / 7.5, atol=0.004)


def test_the_end_of_all_masses_belongs_to_the_last_shard_that_has_any():
    shard, within = locate(np.array([0.0, np.nextafter(1, 0), 1.0]), [0.0, 0.1, 0.2, 0.0])
    assert shard.tolist() == [1, 2, 2]
    assert within[0] == 0 and (within < 1).all()


@pytest.mark.parametrize("masses", [[], [0.0, 0.0], [1.0, -1.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_masses_that_nothing_can_be_drawn_from_are_refused(masses):
    with pytest.raises(OptionError, match="masses="):
        locate(np.array([0.5]), masses)


def test_a_shard_has_its_turn_until_it_got_so_many_transitions():
    turns = Turns(3, first=4, turn=20)
    assert [turns.next(8) for _ in range(8)] == [
        (1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6), (0, 7), (0, 8)
    ]  # fmt: skip
    one_each = Turns(2, first=0, turn=1)
    assert [one_each.next(8)[0] for _ in range(4)] == [0, 1, 0, 1]
