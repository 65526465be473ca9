"""Fragments of several actors, n-step returns over them, and sequences, against plain loops."""

from typing import NamedTuple

import numpy as np
import pytest
from histories import ACTION, VECTOR, World, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import OptionError
from muster.data import PRIORITY, Column, ReplayBuffer, Sequence, StepBlock, Transition, Unroll
from muster.data.steps import FragmentSource

GAMMA = 0.9
NOTE = Column("note", np.dtype(np.float32), (2,))


class Step(NamedTuple):
    """One step of one environment."""

    number: int  # its id in the buffer
    obs: np.ndarray
    reward: float
    next_obs: np.ndarray
    terminated: bool
    truncated: bool


class Actor:
    """Sends fragments of a world, and remembers every step of each environment."""

    def __init__(self, name, num_envs):
        self.name, self.world, self.number = name, World(num_envs), 0
        self.steps = [[] for _ in range(num_envs)]
        self.chains = [[] for _ in range(num_envs)]  # lists of steps that follow each other

    def send(self, buffer, ends, lost=False):
        """Push a fragment with these ends [T][2][N]; a lost one never arrives."""
        self.number += 1
        rows = [self.world.step(*flags) for flags in ends]
        data = StepBlock.of(*(np.stack(each) for each in zip(*rows, strict=True)))
        data.columns["note"] = np.stack([2 * data.reward, -data.reward], axis=-1)
        if lost:
            for chains in self.chains:
                chains.extend([[], []][bool(chains) :])
            return
        first = buffer.inserted
        buffer.push(data, source=FragmentSource(self.name, self.number))
        for env, chains in enumerate(self.chains):
            if not chains:
                chains.append([])
            for t, (obs, _, reward, next_obs, terminated, truncated) in enumerate(rows):
                step = Step(
                    first + t * len(self.chains) + env,
                    obs[env],
                    float(reward[env]),
                    next_obs[env],
                    bool(terminated[env]),
                    bool(truncated[env]),
                )
                chains[-1].append(step)


@st.composite
def fragments(draw):
    """Return a number of environments, and fragments: (actor, lost, ends)."""
    num_envs = draw(st.integers(1, 2))
    flag = st.sampled_from([False] * 5 + [True])
    row = st.lists(flag, min_size=num_envs, max_size=num_envs)
    ends = st.lists(st.tuples(row, row), min_size=1, max_size=6)
    one = st.tuples(st.integers(0, 2), st.sampled_from([False] * 7 + [True]), ends)
    return num_envs, draw(st.lists(one, min_size=1, max_size=14))


def played(num_envs, history, rows, **options):
    """Return a buffer into which the fragments were pushed, and the actors."""
    options = {"gamma": GAMMA, "columns": [NOTE], **options}
    buffer = ReplayBuffer(rows * num_envs, VECTOR, ACTION, num_envs=num_envs, **options)
    actors = [Actor(name, num_envs) for name in range(3)]
    for actor, lost, ends in history:
        actors[actor].send(buffer, ends, lost)
    return buffer, actors


def n_steps(chain, t, n):
    """Return the reward, where it led and the discount of up to n steps of one episode."""
    total = 0.0
    for k in range(n):
        step = chain[t + k]
        total += GAMMA**k * step.reward
        last = k + 1 == n or t + k + 1 == len(chain)
        if step.terminated or step.truncated or last:
            return total, step.next_obs, 0.0 if step.terminated else GAMMA ** (k + 1)
    raise AssertionError("unreachable")


@settings(max_examples=120, deadline=None)
@given(history=fragments(), rows=st.integers(2, 20), n=st.integers(1, 5))
def test_n_step_returns_go_on_over_the_fragments_of_one_actor(history, rows, n):
    buffer, actors = played(*history, rows, n_step=n)
    stored = range(buffer.inserted - len(buffer), buffer.inserted)
    if not len(buffer):
        return
    batch = buffer.draw_at((np.arange(len(buffer)) + 0.5) / len(buffer))
    assert batch.index.tolist() == list(stored)
    np.testing.assert_array_equal(buffer.terminated(batch.index), batch.discount == 0)
    chains = [chain for actor in actors for env in actor.chains for chain in env]
    expected = {step.number: (chain, t) for chain in chains for t, step in enumerate(chain)}
    for row, number in enumerate(batch.index.tolist()):
        chain, t = expected[number]
        reward, next_obs, discount = n_steps(chain, t, n)
        np.testing.assert_array_equal(batch.obs[row], chain[t].obs)
        np.testing.assert_allclose(batch.reward[row], reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(batch.next_obs[row], next_obs)
        np.testing.assert_allclose(batch.discount[row], discount, rtol=1e-6)
        np.testing.assert_array_equal(
            batch.columns["note"][row, 0], 2 * np.float32(chain[t].reward)
        )


def episodes(actor):
    """Yield (steps, whether the first one began it, whether it is over) of every episode."""
    for chains in actor.chains:
        known = True
        for number, chain in enumerate(chains):
            known, steps = number == 0, []
            for step in chain:
                steps.append(step)
                if step.terminated or step.truncated:
                    yield steps, known, True
                    known, steps = True, []
            if steps:
                # A fragment that follows a lost one shows that this episode will not go on.
                yield steps, known, number + 1 < len(chains) and any(chains[number + 1 :])


def sequences(actor, unit):
    """Return the steps of every complete sequence, and the number of steps of burn-in."""
    found = []
    for steps, known, over in episodes(actor):
        for begin in range(0, len(steps), unit.length - unit.overlap):
            part = steps[begin : begin + unit.length]
            burn_in = 0 if begin == 0 and known else unit.burn_in
            if len(part) == unit.length or (over and len(part) > burn_in):
                found.append((part, burn_in))
    return found


UNITS = [
    Sequence(1),
    Sequence(4),
    Sequence(4, overlap=3, burn_in=2, n=3),
    Sequence(5, overlap=2, burn_in=1, n=2),
    Sequence(6, overlap=3, burn_in=3, n=9),
]


@settings(max_examples=300, deadline=None)
@given(history=fragments(), rows=st.integers(2, 40), unit=st.sampled_from(UNITS))
def test_every_complete_sequence_of_an_episode_is_drawn_and_no_other(history, rows, unit):
    buffer, actors = played(*history, rows, unit=unit)
    oldest = buffer.inserted - len(buffer)
    expected = {
        part[0].number: (part, burn_in)
        for actor in actors
        for part, burn_in in sequences(actor, unit)
        if part[0].number >= oldest
    }
    assert buffer.mass == len(expected), "each sequence once, where all are drawn alike"
    if not expected:
        assert buffer.sample(1) is None
        return
    batch = buffer.draw_at((np.arange(len(expected)) + 0.5) / len(expected))
    assert sorted(batch.index.tolist()) == sorted(expected)
    for row, number in enumerate(batch.index.tolist()):
        check_sequence(batch, row, *expected[number], unit)


def check_sequence(batch, row, part, burn_in, unit):
    size = len(part)
    for t in range(unit.length):
        assert batch.valid[row, t] == (t < size)
        assert batch.learn[row, t] == (burn_in <= t < size)
    for t, step in enumerate(part):
        np.testing.assert_array_equal(batch.obs[row, t], step.obs)
        reward, next_obs, discount = n_steps(part, t, unit.n)
        np.testing.assert_allclose(batch.reward[row, t], reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(batch.discount[row, t], discount, rtol=1e-6)
        np.testing.assert_array_equal(batch.obs[row, batch.ahead[row, t]], next_obs)
        np.testing.assert_array_equal(batch.columns["note"][row, t, 0], 2 * np.float32(step.reward))
    np.testing.assert_array_equal(batch.obs[row, size], part[-1].next_obs)


def test_every_step_of_a_finished_episode_is_learnt_from():
    for length in range(1, 30):
        unit = Sequence(6, overlap=4, burn_in=4)
        buffer = ReplayBuffer(64, VECTOR, ACTION, num_envs=1, unit=unit)
        world, no = World(1), [False]
        for t in range(length):
            buffer.add(*world.step([t + 1 == length], no))
        count = int(buffer.mass)
        batch = buffer.draw_at((np.arange(count) + 0.5) / count)
        learnt = (batch.index[:, None] + np.arange(6))[batch.learn]
        assert set(learnt.tolist()) == set(range(length))


def test_an_episode_that_was_cut_gives_its_last_sequences_and_the_next_ones_begin_anew():
    buffer = ReplayBuffer(64, VECTOR, ACTION, num_envs=2, unit=Sequence(4, overlap=2, burn_in=2))
    world, no = World(2), [False, False]
    for _ in range(5):
        buffer.add(*world.step(no, no))
    assert buffer.mass == 2, "the first four steps of each"
    buffer.cut_episodes()
    assert buffer.mass == 4, "steps 2 to 4; what begins with step 4 would be burn-in alone"
    world.restart()
    for _ in range(4):
        buffer.add(*world.step(no, no))
    assert buffer.mass == 6


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_buffer_of_sequences_that_was_saved_goes_on_with_the_same_bits(prioritized):
    def make():
        unit = Sequence(4, overlap=2, burn_in=1, n=2)
        return ReplayBuffer(
            40, VECTOR, ACTION, num_envs=2, unit=unit, prioritized=prioritized, seed=3
        )

    buffer, world, rng = make(), World(2), np.random.default_rng(0)
    for turn in range(60):
        buffer.add(*world.step(*(rng.random((2, 2)) < 0.1)))
        if turn % 5 == 0:
            other = make()
            other.load_state_dict(buffer.state_dict())
            buffer = other
        twin = make()
        twin.load_state_dict(buffer.state_dict())
        one, two = buffer.sample(2), twin.sample(2)
        assert_same(one, two)
        if one is not None:
            error = buffer.unit.priority(rng.normal(size=(2, 4)), one.learn)
            buffer.update_priorities(one.index, error)


def test_the_priority_of_a_sequence_mixes_the_largest_and_the_mean_error_of_what_is_learnt():
    unit = Sequence(4, mix=0.9)
    error = np.array([[1.0, -3.0, 50.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    learnt = np.array([[True, True, False, True], [False] * 4])
    np.testing.assert_allclose(unit.priority(error, learnt), [0.9 * 3 + 0.1 * 2, 0.0])


@pytest.mark.parametrize("sequences", [False, True])
def test_what_an_actor_expects_is_the_priority_of_what_is_new(sequences):
    unit = Sequence(2, mix=1.0) if sequences else Transition()
    buffer = ReplayBuffer(
        16, VECTOR, ACTION, num_envs=1, prioritized=True, alpha=1.0, columns=[PRIORITY], unit=unit
    )
    world, no = World(1), [False]
    for error in (1.0, 4.0, 2.0, 3.0):
        buffer.add(*world.step(no, no), priority=np.float32([error]))
    assert buffer.mass == pytest.approx(4 + 3 if sequences else 10, rel=1e-5)
    with pytest.raises(OptionError, match="the steps have no priority"):
        buffer.add(*world.step(no, no))
    with pytest.raises(OptionError, match="td_error"):
        buffer.add(*world.step(no, no), priority=np.float32([np.nan]))


def test_burn_in_counts_for_the_first_priority_of_a_sequence_as_little_as_later():
    unit = Sequence(4, overlap=2, burn_in=2, mix=1.0)
    buffer = ReplayBuffer(
        16, VECTOR, ACTION, num_envs=1, prioritized=True, alpha=1.0, columns=[PRIORITY], unit=unit
    )
    world, no = World(1), [False]
    for error in (9.0, 1.0, 8.0, 2.0, 3.0, 4.0):
        buffer.add(*world.step(no, no), priority=np.float32([error]))
    # The first one begins an episode, so all of it is learnt from; the other begins with 8 and 2.
    assert buffer.mass == pytest.approx(9 + 4, rel=1e-5)


def test_a_priority_for_a_slot_that_was_overwritten_is_ignored():
    """An index is a number that no other transition ever has: the generation of a slot is in it."""
    buffer = ReplayBuffer(4, VECTOR, ACTION, num_envs=1, prioritized=True, alpha=1.0)
    world, no = World(1), [False]
    for _ in range(4):
        buffer.add(*world.step(no, no))
    old = buffer.sample(4)
    for _ in range(4):
        buffer.add(*world.step(no, no))
    buffer.update_priorities(old.index, np.full(4, 100.0))
    assert buffer.mass == 4.0
    buffer.update_priorities(buffer.sample(4).index, np.full(4, 100.0))
    assert buffer.mass == pytest.approx(400.0)


def test_columns_of_an_earlier_checkpoint_that_had_none_are_zero():
    old, new = (
        ReplayBuffer(8, VECTOR, ACTION, num_envs=1, columns=columns) for columns in ([], [NOTE])
    )
    world, no = World(1), [False]
    for _ in range(3):
        old.add(*world.step(no, no))
    assert "columns" not in old.state_dict() and "follows" not in old.state_dict()
    new.load_state_dict(old.state_dict())
    assert not new.sample(2).columns["note"].any()


def test_fragments_that_follow_each_other_do_so_after_a_checkpoint_too():
    no = [[[False], [False]]] * 2
    history = [(0, False, no), (1, False, no), (0, False, no), (1, False, no)]
    buffer, _ = played(1, history, 20, n_step=4)
    other = ReplayBuffer(20, VECTOR, ACTION, num_envs=1, n_step=4, gamma=GAMMA, columns=[NOTE])
    other.load_state_dict(buffer.state_dict())
    where = (np.arange(8) + 0.5) / 8
    assert other.draw_at(where).discount.tolist() == buffer.draw_at(where).discount.tolist()
    assert buffer.draw_at(where).discount[0] == np.float32(GAMMA**4)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Sequence(0), "length=0 is not possible"),
        (lambda: Sequence(4, overlap=4), r"Sequence\(4, overlap=4, burn_in=0\) is not possible"),
        (lambda: Sequence(4, overlap=1, burn_in=2), "is not possible"),
        (lambda: Transition(0), "n_step=0"),
        (lambda: Unroll(0), "length=0"),
        (lambda: played(1, [], 4, columns=[NOTE, NOTE]), "the columns note twice"),
        (
            lambda: played(1, [], 4, columns=[Column("reward", np.dtype(np.int8))]),
            "the columns reward twice",
        ),
    ],
)
def test_units_and_columns_that_make_no_sense_are_refused(make, what):
    with pytest.raises(OptionError, match=what):
        make()
