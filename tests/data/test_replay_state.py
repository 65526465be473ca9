"""Saving and loading: the same bits at any point, and refusal of what is not like this buffer."""

import copy
import json

import numpy as np
import pytest
from gymnasium import spaces
from histories import ACTION, VECTOR, Model, World, assert_same, run, vector_buffer
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster import OptionError
from muster.data import ReplayBuffer, StepBlock


def through_a_file(state):
    """Return the state as a checkpoint would: JSON for plain values, bytes for arrays."""
    if isinstance(state, dict):
        assert all(type(key) is str for key in state)
        return {key: through_a_file(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return np.frombuffer(state.tobytes(), state.dtype).reshape(state.shape)
    return json.loads(json.dumps(state))


class SavedAtAnyPoint(RuleBasedStateMachine):
    """Two buffers get the same calls; one of them is now and then replaced by its saved self."""

    @initialize(
        rows=st.integers(1, 9),
        num_envs=st.integers(1, 3),
        n_step=st.integers(1, 3),
        prioritized=st.booleans(),
    )
    def make(self, rows, num_envs, n_step, prioritized):
        def new():
            return vector_buffer(
                rows * num_envs, num_envs, n_step=n_step, gamma=0.9, prioritized=prioritized
            )

        self.new, self.plain, self.saved = new, new(), new()
        self.world, self.model = World(num_envs), Model(num_envs, n_step, 0.9)
        self.rng = np.random.default_rng(0)
        self.batch = None

    def _step(self, end_probability):
        step = self.world.step(*(self.rng.random((2, self.world.num_envs)) < end_probability))
        self.model.add(*step)
        return step

    @rule(steps=st.integers(1, 4), end_probability=st.sampled_from([0.0, 0.3, 1.0]))
    def add(self, steps, end_probability):
        for _ in range(steps):
            step = self._step(end_probability)
            self.plain.add(*step)
            self.saved.add(*step)

    @rule(steps=st.integers(1, 4))
    def push(self, steps):
        data = [self._step(0.2) for _ in range(steps)]
        together = StepBlock.of(*(np.stack(each) for each in zip(*data, strict=True)))
        self.plain.push(together)
        self.saved.push(together)

    @rule()
    def cut(self):
        self.plain.cut_episodes()
        self.saved.cut_episodes()
        self.model.cut()
        self.world.restart()

    @rule(batch_size=st.integers(1, 9))
    def sample(self, batch_size):
        if batch_size > self.plain.capacity:
            return
        batch, other = self.plain.sample(batch_size), self.saved.sample(batch_size)
        assert_same(batch, other)
        if batch is not None:
            self.model.check(batch)
            self.batch = batch

    @precondition(lambda self: self.batch is not None)
    @rule()
    def update(self):
        td_error = self.rng.normal(size=self.batch.index.shape) * 5
        self.plain.update_priorities(self.batch.index, td_error)
        self.saved.update_priorities(self.batch.index, td_error)

    @rule(used=st.booleans())
    def save_and_load(self, used):
        state = through_a_file(self.saved.state_dict())
        self.saved = self.new()
        if used:  # what was in it before must leave no trace
            run(self.saved, World(self.world.num_envs), 7, np.random.default_rng(9), 0.5)
        self.saved.load_state_dict(state)

    @invariant()
    def all_is_equal(self):
        if hasattr(self, "plain"):
            assert (self.plain.inserted, len(self.plain)) == (
                self.saved.inserted,
                len(self.saved),
            )
            assert_same_state(self.plain.state_dict(), self.saved.state_dict())


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            assert_same_state(value, other[key])
        elif isinstance(value, np.ndarray):
            assert value.dtype == other[key].dtype and value.shape == other[key].shape
            assert value.tobytes() == other[key].tobytes(), key
        else:
            assert value == other[key], key


TestSavedAtAnyPoint = SavedAtAnyPoint.TestCase
TestSavedAtAnyPoint.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def learn(buffer, world, rng):
    """Go on for a while, as a program would; return all that was sampled."""
    batches = []
    for _ in range(3):
        run(buffer, world, 2, rng)
        batches.append(buffer.sample(4))
        buffer.update_priorities(batches[-1].index, rng.normal(size=4) * 5)
    return batches


@pytest.mark.parametrize("prioritized", [False, True])
def test_saved_after_every_step_of_a_program_it_goes_on_the_same(prioritized):
    buffer, world = vector_buffer(24, 2, n_step=2, prioritized=prioritized), World(2)
    rng = np.random.default_rng(0)
    learn(buffer, world, rng)
    for seed in range(25):
        other = vector_buffer(24, 2, n_step=2, prioritized=prioritized, seed=9)
        other.load_state_dict(through_a_file(buffer.state_dict()))
        later = learn(other, copy.deepcopy(world), np.random.default_rng(seed))
        for one, two in zip(learn(buffer, world, np.random.default_rng(seed)), later, strict=True):
            assert_same(one, two)


def test_a_state_is_a_copy_and_holds_only_what_is_stored():
    buffer, world = vector_buffer(2000, 2), World(2)
    run(buffer, world, 3, np.random.default_rng(0))
    state = buffer.state_dict()
    assert len(state["obs"]) == 4 and len(state["reward"]) == 3
    before = state["obs"].copy()
    run(buffer, world, 1500, np.random.default_rng(0))
    np.testing.assert_array_equal(state["obs"], before)


def test_dict_observations_are_saved_by_key():
    space = spaces.Dict({"speed": VECTOR, "camera": spaces.Box(0, 255, (4, 4), np.uint8)})
    buffers = [ReplayBuffer(8, space, ACTION, num_envs=1) for _ in range(2)]
    space.seed(0)
    yes, no = np.array([True]), np.array([False])
    for t in range(12):
        one, two = ({key: v[None] for key, v in space.sample().items()} for _ in range(2))
        buffers[0].add(one, np.zeros(1, int), np.zeros(1), two, yes if t % 2 else no, no)
    state = buffers[0].state_dict()
    assert set(state["obs"]) == set(state["final_obs"]) == {"speed", "camera"}
    buffers[1].load_state_dict(through_a_file(state))
    batches = [each.sample(8) for each in buffers]
    for key in ("speed", "camera"):
        for name in ("obs", "next_obs"):
            one, two = (getattr(batch, name)[key] for batch in batches)
            assert one.tobytes() == two.tobytes()


USUAL = {"capacity": 20, "obs_space": VECTOR, "action_space": ACTION, "num_envs": 2}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"capacity": 10}, "the state has capacity=20, this buffer has capacity=10"),
        ({"num_envs": 4}, "the state has num_envs=2, this buffer has num_envs=4"),
        (
            {"obs_space": spaces.Box(-1, 1, (4,))},
            "the state has obs_space='Box([3], float32)', "
            "this buffer has obs_space='Box([4], float32)'",
        ),
        (
            {"action_space": spaces.Discrete(6)},
            "the state has action_space='Discrete(5, start=0)', "
            "this buffer has action_space='Discrete(6, start=0)'",
        ),
        ({"prioritized": True}, "the state has alpha=None, this buffer has alpha=0.6"),
    ],
)
def test_the_state_of_another_kind_of_buffer_is_refused(options, what):
    state = ReplayBuffer(**USUAL).state_dict()
    with pytest.raises(OptionError) as caught:
        ReplayBuffer(**(USUAL | options)).load_state_dict(state)
    assert str(caught.value).startswith(what)


def test_what_only_shapes_the_reading_may_be_another():
    buffer, other = ReplayBuffer(**USUAL), ReplayBuffer(**USUAL, n_step=3, gamma=0.5, beta=1.0)
    run(buffer, World(2), 5, np.random.default_rng(0), 0.0)
    other.load_state_dict(buffer.state_dict())
    assert 0.125 in other.sample_many(10, 4).discount


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 99},
        {"made_for": {}},
        {"inserted": 11},
        {"inserted": -2},
        {"inserted": 40},
        {"obs": np.zeros((5, 2, 3), np.float32)},
        {"action": np.zeros((5, 2))},
        {"reward": np.zeros((4, 2), np.float32)},
        {"end": np.ones((5, 2), np.uint8)},
        {"final_obs": np.zeros((1, 3), np.float32)},
        {"priorities": np.zeros(10)},
        {"priorities": np.ones(9)},
        {"priorities": np.full(10, np.nan)},
        {"largest": 0.0},
    ],
)
def test_a_state_that_does_not_fit_together_is_refused_and_changes_nothing(damage):
    """Five steps of two environments without an end: obs has six rows, nothing is final."""
    prioritized = not damage.keys().isdisjoint({"priorities", "largest"})
    buffer = ReplayBuffer(**USUAL, prioritized=prioritized)
    run(buffer, World(2), 5, np.random.default_rng(0), 0.0)
    state = buffer.state_dict()
    with pytest.raises(OptionError):
        buffer.load_state_dict(state | damage)
    assert_same_state(buffer.state_dict(), state)
    buffer.load_state_dict(state)


def test_a_state_that_lacks_a_part_is_refused_and_changes_nothing():
    buffer = ReplayBuffer(**USUAL, prioritized=True)
    run(buffer, World(2), 5, np.random.default_rng(0), 0.0)
    state = buffer.state_dict()
    other = ReplayBuffer(**USUAL, prioritized=True)
    for part in set(state) - {"format", "made_for"}:
        with pytest.raises(OptionError, match=f"the state lacks {part}"):
            other.load_state_dict({key: state[key] for key in state if key != part})
    with pytest.raises((ValueError, TypeError)):
        other.load_state_dict(state | {"rng": {"bit_generator": "MT19937"}})
    assert other.inserted == 0
