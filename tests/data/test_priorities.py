"""Prioritized replay: who is drawn how often, with which weight, and whose priority changes."""

import numpy as np
import pytest
from histories import World, assert_near_chi_square, run, vector_buffer

from muster import OptionError
from muster.data.priorities import EPS


def filled(rows=10, steps=10, **options):
    buffer, world = vector_buffer(2 * rows, 2, prioritized=True, **options), World(2)
    run(buffer, world, steps, np.random.default_rng(0))
    return buffer, world


def priorities(buffer):
    return buffer.state_dict()["priorities"]


def draw(buffer, rounds, batch_size=10):
    return np.concatenate([buffer.sample(batch_size).index for _ in range(rounds)])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_transitions_are_drawn_in_proportion_to_priority_to_the_alpha(alpha):
    buffer, _ = filled(rows=25, steps=40, alpha=alpha, seed=4)
    ids = np.arange(30, 80)
    td_error = np.random.default_rng(1).normal(size=50) * 3
    buffer.update_priorities(ids, td_error)
    share = (np.abs(td_error) + EPS) ** alpha
    counts = np.bincount(draw(buffer, 4000) - 30, minlength=50)
    assert_near_chi_square(counts, 40_000 * share / share.sum(), regular=True)


def test_a_batch_takes_one_from_each_equal_part():
    buffer, _ = filled()
    for _ in range(20):
        assert sorted(buffer.sample(20).index) == list(range(20))
        assert all(first // 5 == part for part, first in enumerate(buffer.sample(4).index))


def test_within_its_part_every_transition_is_drawn_equally_often():
    buffer, _ = filled()
    counts = np.bincount(draw(buffer, 8000, batch_size=2), minlength=20)
    assert_near_chi_square(counts, np.full(20, 800.0))


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_undo_the_priorities_and_the_largest_is_one(beta):
    buffer, _ = filled(alpha=0.7, beta=beta)
    td_error = np.linspace(0.1, 5, 20)
    buffer.update_priorities(np.arange(20), td_error)
    share = (td_error + EPS) ** 0.7
    share /= share.sum()
    for batch in (buffer.sample(15), buffer.sample(15, beta=beta)):
        expected = (20 * share[batch.index]) ** -beta
        np.testing.assert_allclose(batch.weight, expected / expected.max(), rtol=1e-6)
        assert batch.weight.dtype == np.float32 and batch.weight.max() == 1


def test_beta_of_the_call_goes_before_beta_of_the_buffer():
    buffer, _ = filled(beta=0.4)
    buffer.update_priorities(np.arange(20), np.linspace(0.1, 5, 20))
    assert (buffer.sample(16, beta=0.0).weight == 1).all()
    assert (buffer.sample(16).weight != 1).any()


def test_new_transitions_get_the_largest_priority_so_far():
    buffer, world = filled(rows=4, steps=2, alpha=0.5)
    assert priorities(buffer).tolist() == [1.0] * 4
    buffer.update_priorities(np.arange(4), np.array([9.0, 0.25, 0.0, -4.0]))
    run(buffer, world, 1, np.random.default_rng(1))
    expected = np.sqrt(np.array([9, 0.25, 0, 4, 9, 9]) + EPS)
    np.testing.assert_allclose(priorities(buffer), expected, rtol=1e-12)
    buffer.update_priorities(np.arange(6), np.full(6, 0.01))
    run(buffer, world, 3, np.random.default_rng(1))
    np.testing.assert_allclose(priorities(buffer)[-6:], 3, rtol=1e-6)


def test_priorities_that_arrive_after_the_overwriting_are_passed_over():
    buffer, world = filled(rows=4, steps=4)
    batch = buffer.sample(8)
    run(buffer, world, 2, np.random.default_rng(1))  # overwrites the ids 0 .. 3
    before = priorities(buffer)
    buffer.update_priorities(batch.index, np.full(8, 100.0))
    after = priorities(buffer)
    late = np.arange(4, 12) >= 8
    np.testing.assert_array_equal(after[late], before[late])
    np.testing.assert_allclose(after[~late], (100 + EPS) ** 0.6)


def test_late_priorities_do_not_raise_the_largest_one_either():
    buffer, world = filled(rows=4, steps=8)
    buffer.update_priorities(np.arange(8), np.full(8, 1e6))
    run(buffer, world, 1, np.random.default_rng(1))
    assert (priorities(buffer) == 1).all()


def test_of_a_transition_named_twice_the_last_priority_counts():
    buffer, _ = filled(alpha=1.0)
    buffer.update_priorities(np.array([3, 3, 3]), np.array([1.0, 9.0, 2.0]))
    assert priorities(buffer)[3] == 2 + EPS


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_td_error_that_is_no_finite_number_is_refused_and_changes_nothing(bad):
    buffer, _ = filled()
    before = priorities(buffer)
    with pytest.raises(OptionError) as caught:
        buffer.update_priorities(np.array([5, 7, 8]), np.array([1.0, bad, 1.0]))
    assert str(caught.value).startswith(f"td_error[1]={abs(bad)} of transition 7")
    np.testing.assert_array_equal(priorities(buffer), before)


@pytest.mark.parametrize(
    ("index", "td_error", "what"),
    [
        ([0, 1], [1.0], "index is int64 (2,), td_error has shape (1,)"),
        ([0.0], [1.0], "index is float64"),
        ([20], [1.0], "index reaches from 20 to 20"),
        ([-1, 3], [1.0, 1.0], "index reaches from -1 to 3"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(index, td_error, what):
    buffer, _ = filled()
    with pytest.raises(OptionError) as caught:
        buffer.update_priorities(np.array(index), np.array(td_error))
    assert str(caught.value).startswith(what)


def test_no_priorities_at_all_are_fine():
    buffer, _ = filled()
    buffer.update_priorities(np.zeros(0, np.int64), np.zeros(0))


@pytest.mark.parametrize("beta", [-0.1, 1.5, float("nan")])
def test_a_beta_outside_of_0_to_1_is_refused(beta):
    buffer, _ = filled()
    with pytest.raises(OptionError, match="beta="):
        buffer.sample(4, beta=beta)


def test_many_batches_at_once_are_refused():
    buffer, _ = filled()
    with pytest.raises(OptionError, match="prioritized"):
        buffer.sample_many(2, 4)


def test_mass_and_chance_are_those_that_draws_are_made_by():
    buffer, _ = filled(rows=25, steps=40, alpha=0.6)  # 25 rows of 2, the oldest ids overwritten
    ids = np.arange(30, 80)
    td_error = np.random.default_rng(1).normal(size=50) * 3
    buffer.update_priorities(ids, td_error)
    share = (np.abs(td_error) + EPS) ** 0.6
    assert buffer.mass == pytest.approx(share.sum())
    assert np.allclose(buffer.chance(ids), share / share.sum())


def test_uniform_replay_has_its_size_as_mass_and_one_chance_for_all():
    buffer, world = vector_buffer(20, 2), World(2)
    run(buffer, world, 6, np.random.default_rng(0))
    assert buffer.mass == 12
    assert buffer.chance(np.arange(12)).tolist() == [1 / 12] * 12


@pytest.mark.parametrize("prioritized", [False, True])
def test_what_lies_at_a_part_of_the_mass_is_what_a_draw_of_it_would_read(prioritized):
    buffer, _ = filled(rows=10, steps=23) if prioritized else filled_uniform()
    ids = np.arange(buffer.inserted - len(buffer), buffer.inserted)
    if prioritized:
        ids = ids[np.argsort(ids % buffer.capacity)]  # as they lie in the tree
    buffer.update_priorities(ids, np.linspace(0.1, 9, len(ids)))
    chance = buffer.chance(ids)
    borders = np.cumsum(chance)
    where = np.sort(np.random.default_rng(3).random(500))
    batch = buffer.draw_at(where)
    assert batch.index.tolist() == ids[np.searchsorted(borders, where)].tolist()
    assert (batch.weight == 1).all() and len(batch.obs) == 500
    assert set(buffer.draw_at(borders - chance / 2).index) == set(ids)


def filled_uniform():
    buffer, world = vector_buffer(20, 2), World(2)
    run(buffer, world, 23, np.random.default_rng(0))
    return buffer, world


def test_a_new_transition_gets_the_largest_priority_that_is_known_here_or_elsewhere():
    buffer, world = filled()
    buffer.expect(7.0)
    buffer.expect(3.0)
    run(buffer, world, 1, np.random.default_rng(0))
    assert priorities(buffer)[-2:].tolist() == [7.0] * 2 and priorities(buffer)[-3] == 1.0
    assert buffer.largest == 7.0
