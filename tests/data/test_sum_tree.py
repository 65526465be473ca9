"""The sum tree against a list of numbers."""

import numpy as np
import pytest
from histories import assert_near_chi_square
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data import SumTree, sum_tree

VALUE = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))


@st.composite
def changes(draw):
    size = draw(st.integers(1, 40))
    leaf = st.integers(0, size - 1)
    put = st.lists(st.tuples(leaf, VALUE), min_size=1, max_size=8)
    fill = st.tuples(leaf, leaf, VALUE)
    return size, draw(st.lists(st.one_of(put, fill), min_size=1, max_size=12))


def apply(tree, values, change):
    """Change the tree and the list in the same way."""
    if isinstance(change, list):
        leaf, value = zip(*change, strict=True)
        tree.put(np.array(leaf), np.array(value))
        for each, new in change:
            values[each] = new
    else:
        start, stop = sorted(change[:2])
        tree.fill(start, stop + 1, change[2])
        values[start : stop + 1] = [change[2]] * (stop + 1 - start)


@settings(max_examples=150, deadline=None)
@given(changes())
def test_it_holds_what_a_list_would(history):
    size, steps = history
    tree, values = SumTree(size), [0.0] * size
    for change in steps:
        apply(tree, values, change)
        assert tree.values().tolist() == values
        assert tree.total == pytest.approx(sum(values), rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(changes(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_it_finds_the_leaf_that_a_running_sum_finds(history, fractions):
    size, steps = history
    tree, values = SumTree(size), [0.0] * size
    for change in steps:
        apply(tree, values, change)
    if tree.total == 0:
        return
    mass = np.array(fractions) * tree.total
    leaf, value = tree.find(mass)
    running = np.cumsum(values)
    for wanted, found, worth in zip(mass, leaf, value, strict=True):
        assert worth == values[found] > 0
        slack = 1e-9 * tree.total  # sums in another order round in another way
        assert running[found] - values[found] - slack <= wanted <= running[found] + slack


def test_a_mass_that_nobody_has_goes_to_the_last_leaf_with_a_value():
    tree = SumTree(6)
    tree.put(np.array([0, 3]), np.array([0.1, 0.2]))
    leaf, value = tree.find(np.array([0.0, tree.total, 1e9]))
    assert leaf.tolist() == [0, 3, 3] and value.tolist() == [0.1, 0.2, 0.2]


def test_a_leaf_without_value_is_never_found():
    tree, rng = SumTree(1000), np.random.default_rng(0)
    some = np.arange(0, 1000, 7)
    tree.put(some, rng.random(some.size) + 1e-3)
    leaf, value = tree.find(rng.random(100_000) * tree.total)
    assert set(leaf) <= set(some) and (value > 0).all()


def test_leaves_are_found_in_proportion_to_their_values():
    rng = np.random.default_rng(1)
    tree, values = SumTree(100), rng.random(100) + 0.05
    tree.load(values)
    leaf, _ = tree.find(rng.random(100_000) * tree.total)
    counts = np.bincount(leaf, minlength=100)
    assert_near_chi_square(counts, 100_000 * values / values.sum())


def test_the_leaves_alone_determine_the_tree():
    """No error builds up: after a million changes the sums are those of a new tree."""
    rng = np.random.default_rng(2)
    tree, anew = SumTree(300), SumTree(300)
    for _ in range(2000):
        tree.put(rng.integers(0, 300, 500), 10.0 ** rng.integers(-8, 8, 500))
    anew.load(tree.values())
    assert tree._tree.tobytes() == anew._tree.tobytes()


@settings(max_examples=100, deadline=None)
@given(changes(), st.lists(st.floats(0, 1.5), min_size=1, max_size=20))
def test_the_numpy_twins_do_the_same_to_the_bit(history, fractions):
    size, steps = history
    tree, twin = SumTree(size)._tree, SumTree(size)._tree
    for change in steps:
        if isinstance(change, list):
            leaf, value = (np.array(each) for each in zip(*change, strict=True))
            sum_tree.put(tree, leaf, value)
            sum_tree.put_numpy(twin, leaf, value)
        else:
            start, stop = sorted(change[:2])
            sum_tree.fill(tree, start, stop + 1, change[2])
            sum_tree.fill_numpy(twin, start, stop + 1, change[2])
        assert tree.tobytes() == twin.tobytes()
    mass = np.array(fractions) * tree[1]
    found = [(np.empty(mass.size, np.int64), np.empty(mass.size)) for _ in range(2)]
    sum_tree.find(tree, mass, *found[0])
    sum_tree.find_numpy(tree, mass, *found[1])
    assert found[0][0].tolist() == found[1][0].tolist()
    assert found[0][1].tobytes() == found[1][1].tobytes()
