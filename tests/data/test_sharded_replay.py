"""Replay in shards, on real nodes: draws as one buffer does, counts exactly, survives a kill."""

import numpy as np
import pytest
import shard_programs as programs
from histories import assert_near_chi_square

from muster import NodeError, OptionError, Parallel
from muster.data import ShardedReplay, ShardFeed

pytestmark = pytest.mark.timeout(600)


def run(main, shards, *args, actors=1, **options):
    roles = programs.roles(shards, actors)
    return Parallel.runner(roles=roles, **options)(main, *args)[0]


def homogeneity(one, other):
    """Return how far two rows of counts are from one distribution, in standard deviations."""
    both = one + other
    scale = np.sqrt(one.sum() / other.sum())
    statistic = ((one / scale - other * scale) ** 2 / both).sum()
    freedom = len(one) - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


def counts_of_one_buffer(prioritized, fragments, batches, batch_size):
    """Do what `draw_often` does, with a buffer in this process."""
    items = programs.SIZE * fragments
    buffer = programs.make_buffer(items, prioritized, beta=programs.BETA, seed=8)
    for number in range(fragments):
        buffer.push(programs.fragment(0, number))
    if not prioritized:
        drawn = buffer.sample_many(batches, batch_size)
        return np.bincount(drawn.obs[..., 0].ravel().astype(int), minlength=items)
    buffer.update_priorities(np.arange(items), programs.error_of(np.arange(items)))
    drawn = [buffer.sample(batch_size).index for _ in range(batches)]
    return np.bincount(np.concatenate(drawn), minlength=items)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_shards_draw_each_transition_as_often_as_one_buffer(shards, prioritized):
    fragments, batches, size = 13, 800, 32  # 13 fragments do not split evenly
    counts, more = run(
        programs.draw_often, shards, shards, prioritized, fragments, batches, size, 2
    )
    items = np.arange(programs.SIZE * fragments)
    share = programs.error_of(items) ** 0.8 if prioritized else np.ones(len(items))
    expected = batches * size * share / share.sum()
    assert_near_chi_square(counts, expected, regular=prioritized)
    one = counts_of_one_buffer(prioritized, fragments, batches, size)
    assert_near_chi_square(one, expected, regular=prioritized)
    assert homogeneity(counts, one) < 4
    if prioritized:
        assert max(more) == min(more) == 1.0
    else:
        # Rows of a batch do not depend on each other: neither do their shards.
        halves = np.histogram2d(more[:, 0], more[:, 1], bins=2)[0].ravel()
        assert_near_chi_square(halves, np.full(4, batches / 4))


@pytest.mark.parametrize(("shards", "actors"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_every_step_that_was_stored_is_counted_once(shards, actors, tmp_path):
    loops, samples, ratio = 40, 64, 4.0
    told = run(
        programs.count_exactly, shards, shards, actors, loops, samples, ratio, tmp_path,
        actors=actors,
    )  # fmt: skip
    logs = programs.stored_by(tmp_path)
    stored = [each for log in logs.values() for each in log]
    assert len(set(stored)) == len(stored)
    assert told["counted"][-1] == len(stored) * programs.SIZE
    assert sorted(map(tuple, told["notes"])) == sorted(stored)
    assert told["stored"] == min(told["counted"][-1], 512 // shards // 2 * 2 * shards)
    # The actors take turns, and what each sends to one shard stays in order.
    for node in range(1, 1 + shards):
        for actor in range(1 + shards, 1 + shards + actors):
            numbers = [number for sender, number in logs[f"shard.{node}.0"] if sender == actor]
            turn = (node - 1 - actor) % shards
            assert numbers == list(range(turn, turn + shards * len(numbers), shards))
    # Samples per insert: never more than asked for, and no more inserts than were needed.
    assert told["drawn"] == loops * samples
    due = 64 + (loops * samples - ratio) / ratio
    assert due <= told["counted"][-1] < due + programs.SIZE
    # What waits is bounded: two fragments under way and two held, for each shard.
    sent = sum(int((tmp_path / f"sent.{1 + shards + n}").read_text()) for n in range(actors))
    assert len(stored) < sent <= len(stored) + 2 * shards + 2 * shards * actors + actors


@pytest.fixture(scope="module")
def late():
    return run(programs.late_priorities, 2)


def test_an_error_of_a_transition_that_was_overwritten_changes_nothing(late):
    assert late["before"] == late["overwritten"] == [16.0, 16.0]
    assert late["after late errors"] == [16.0, 16.0]


def test_an_error_of_a_transition_that_is_there_changes_its_priority(late):
    assert late["after a new error"] == pytest.approx(31.0 + 500.0**0.8, rel=1e-6)


def test_what_is_new_is_as_important_as_the_largest_error_of_any_shard(late):
    assert late["new ones after it"] == pytest.approx([16 * 500.0**0.8] * 2, rel=1e-6)


def test_an_index_that_no_batch_had_and_an_error_that_is_no_number_are_refused(late):
    assert late["never given out"].startswith("index reaches from 500000")
    assert late["not finite"].startswith("td_error[0]=nan")


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize(
    ("kill", "shards"),
    [
        (None, 2),
        pytest.param("early", 1, marks=pytest.mark.slow),
        ("early", 2),
        pytest.param("late", 1, marks=pytest.mark.slow),
        pytest.param("late", 2, marks=pytest.mark.slow),
    ],
)
def test_a_killed_shard_begins_empty_and_training_goes_on(kill, shards, prioritized, tmp_path):
    loops = 120
    told = run(
        programs.killed_shard, shards, kill, shards, prioritized, loops, tmp_path,
        on_failure={"replay": "restart"},
    )  # fmt: skip
    logs = programs.stored_by(tmp_path)
    lives = [name for name in logs if name.startswith("shard.1.")]
    # Whether the kill landed is seen from the process that took over.
    assert len(lives) == (2 if kill else 1)
    assert told["generations"] == [int(kill is not None)] + [0] * (shards - 1)
    # Each fragment is counted once; one that was stored as its shard died may not have been told.
    assert len(set(told["notes"])) == len(told["notes"])
    assert told["inserted"] == len(told["notes"]) * programs.SIZE
    stored = [each for log in logs.values() for each in log]
    assert len(set(stored)) == len(stored)
    untold = set(stored) - set(told["notes"])
    assert set(told["notes"]) <= set(stored) and len(untold) <= len(lives) - 1
    assert all(each == logs["shard.1.0"][-1] for each in untold)
    if prioritized:
        # What is new has priority 1, what was learnt from 0.1^0.8: the new process was told, too.
        assert all(mass < 0.9 * size for size, mass in told["contents"])
    if kill == "late":
        fell = np.diff(told["sizes"]).min()
        assert fell < -100, "what the shard had held is gone"
        assert told["after"] >= 50 and told["late"] > 0
    else:
        assert told["sizes"] == sorted(told["sizes"]) and told["batches"] == 2 * (loops + 1)


@pytest.mark.parametrize(("shards", "loops"), [(1, 30), (2, 0), (2, 30)])
def test_a_learner_that_is_replaced_counts_what_it_has_told_the_shards_to_store(
    shards, loops, tmp_path
):
    notes, inserted, stored = run(
        programs.killed_learner, shards, shards, loops, tmp_path, on_failure={"learner": "resume"}
    )
    assert (tmp_path / "died").exists()
    logs = programs.stored_by(tmp_path)
    assert len(logs) == shards, "only the learner was replaced"
    expected = [each for log in logs.values() for each in log]
    assert sorted(map(tuple, notes)) == sorted(expected) and len(set(expected)) == len(expected)
    assert inserted == stored == len(notes) * programs.SIZE


@pytest.mark.parametrize("prioritized", [False, True])
def test_what_is_saved_comes_back_to_the_shards(prioritized):
    state, inserted, stored, masses = run(programs.save_contents, 2, 2, prioritized, 6)
    assert inserted == stored == 6 * programs.SIZE
    counted, again, items, same = run(programs.load_contents, 2, 2, prioritized, 6, state)
    assert (counted, again) == (inserted, stored)
    known = programs.items_of([(3, number) for number in range(6)])
    assert np.isin(items, known).all() and len(items) > 16
    for one, other, mass in zip(state["shards"], same["shards"], masses, strict=True):
        assert one["inserted"] == other["inserted"] and (one["obs"] == other["obs"]).all()
        if prioritized:
            assert (one["priorities"] == other["priorities"]).all()
            assert one["priorities"].sum() != len(one["priorities"]) and mass > 0


def test_what_was_saved_of_other_shards_is_refused():
    with pytest.raises(NodeError, match="the state is of 1 shards, this replay has 2"):
        run(programs.load_contents, 2, 2, False, 6, {"shards": [{}]})
    with pytest.raises(NodeError, match="the state is of one buffer, this replay has 1"):
        run(programs.load_contents, 1, 1, False, 6, {"inserted": 3})


def test_options_without_sense_are_refused():
    with pytest.raises(OptionError, match="number of shards=0"):
        ShardedReplay([], 100)
    with pytest.raises(OptionError, match="number of shards=0"):
        ShardFeed([])
    with pytest.raises(OptionError, match="min_size=101"):
        ShardedReplay([0], 100, min_size=101)
    with pytest.raises(OptionError, match="prefetch=-1"):
        ShardedReplay([0], 100, prefetch=-1)
    with pytest.raises(OptionError, match="sample_many"):
        ShardedReplay([0], 100, prioritized=True).sample_many(2, 8)
    with pytest.raises(OptionError, match="batch_size=101"):
        ShardedReplay([0], 100).sample(101)
