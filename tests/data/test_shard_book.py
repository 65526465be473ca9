"""Shards without any carrier: what is stored once, what a life of a shard means, whose errors."""

from functools import partial

import numpy as np
import pytest
from histories import World, vector_buffer

from muster import OptionError
from muster.data import VERSION, StepBlock
from muster.data.shard_book import ShardBook
from muster.data.shard_state import ShardState
from muster.data.steps import FragmentSource


def fragment(world, steps=4):
    none = np.zeros(world.num_envs, bool)
    rows = [world.step(none, none) for _ in range(steps)]
    return StepBlock.of(*(np.stack(each) for each in zip(*rows, strict=True)))


class Program:
    """Shards, and whoever draws from them, in one process and without a carrier."""

    def __init__(self, shards, prioritized=False, **options):
        make = partial(
            vector_buffer, 64, 2, prioritized=prioritized, alpha=1.0, columns=[VERSION], **options
        )
        self.make = make
        self.states = [ShardState(make, generation=0) for _ in range(shards)]
        self.book = ShardBook(shards, prioritized, np.random.default_rng(0))
        self.world, self.number = World(2), 0

    def store(self, shard, data=None, number=None):
        self.number += 1
        source = FragmentSource("actor", number or self.number)
        answer = self.states[shard].store(data or fragment(self.world), self.number, source)
        self.book.begin(shard, answer.generation)
        self.book.saw(shard, answer.contents)
        return answer

    def draw(self, size):
        asked = self.book.ask((size,))
        for shard in asked.rows:
            answer = self.states[shard].draw(asked.wanted(shard))
            self.book.answer(asked, shard, answer.batch, answer.chance)
        assert asked.is_complete
        return self.book.batch(asked, beta=1.0)

    def tell_errors(self, index, td_error):
        self.book.note_errors(index, td_error)
        for number, state in enumerate(self.states):
            known = self.book.shards[number].generation
            state.learn(known, self.book.take_errors(number))
            if state.generation == known:
                self.book.saw(number, state.contents())

    def kill(self, shard):
        self.states[shard] = ShardState(self.make, self.states[shard].generation + 1)


def test_a_fragment_that_comes_again_is_stored_once():
    program = Program(1)
    data = fragment(program.world)
    for number in (1, 1, 2, 1, 2):
        program.store(0, data, number)
    assert program.book.stored == 2 * len(data)


def test_a_batch_of_all_shards_knows_which_weights_acted():
    program = Program(3)
    for number in range(9):
        program.store(number % 3)
    batch = program.draw(200)
    assert set(batch.columns["version"].tolist()) == set(range(1, 10))
    shard, step = batch.index % 3, batch.index // 3 // 2
    assert np.array_equal(batch.columns["version"], 1 + shard + 3 * (step // 4))


def test_errors_go_to_the_shards_they_concern_and_weights_are_those_of_one_buffer():
    program = Program(2, prioritized=True)
    program.store(0)
    program.store(1)
    index = np.unique(program.draw(500).index)
    assert len(index) == 16
    program.tell_errors(index, 1.0 + index)
    assert [each.contents.mass for each in program.book.shards] == pytest.approx(
        [(1.0 + index[index % 2 == k]).sum() for k in range(2)], rel=1e-5
    )
    batch = program.draw(300)
    expected = (1.0 + batch.index).min() / (1.0 + batch.index)
    np.testing.assert_allclose(batch.weight, expected, rtol=1e-4)


def test_errors_of_a_life_that_is_over_change_nothing_in_the_next_one():
    program = Program(2, prioritized=True)
    for shard in (0, 1):
        program.store(shard)
    old = program.draw(50)
    program.kill(0)
    # Before anybody has seen the new life, the generation that the errors carry tells.
    program.tell_errors(old.index, np.full(50, 9.0))
    assert program.states[0].contents().mass == 0.0
    program.store(0)
    again = program.draw(200)
    assert not set(again.index[again.index % 2 == 0]) & set(old.index)
    mass = program.states[0].contents().mass
    program.tell_errors(old.index, np.full(50, 900.0))
    assert program.states[0].contents().mass == mass, "index says that they are of the former life"


def test_a_life_that_is_not_later_is_no_new_one():
    book = ShardBook(1, False, np.random.default_rng(0))
    assert [book.begin(0, life) for life in (3, 3, 2, 4)] == [True, False, False, True]


def test_an_index_that_was_never_given_out_is_refused():
    program = Program(2, prioritized=True)
    program.store(0)
    with pytest.raises(OptionError, match="index reaches from"):
        program.book.note_errors(np.array([10**6]), np.ones(1))


def test_n_step_returns_of_a_shard_end_where_a_turn_ends():
    program = Program(2, n_step=3, gamma=0.5)
    for shard, number in ((0, 1), (0, 2), (1, 3), (0, 4)):
        program.store(shard, number=number)
    batch = program.states[0].draw((np.arange(24) + 0.5) / 24).batch
    steps = batch.discount.reshape(12, 2)[:, 0].tolist()
    # Four steps of fragment 1, which goes on in 2; fragment 3 is elsewhere, so 2 ends; then 4.
    assert steps == [0.125] * 6 + [0.25, 0.5] + [0.125, 0.125, 0.25, 0.5]


def test_a_shard_that_begins_with_a_saved_content_has_the_same():
    program = Program(1, prioritized=True)
    program.store(0)
    saved = program.states[0].save()
    other = ShardState(program.make, 5)
    other.begin(saved)
    assert other.contents().stored == 8 and other.contents().mass == 8.0
