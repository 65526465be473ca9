"""n-step transitions against a slow model, over random histories."""

import numpy as np
import pytest
from histories import Model, World, vector_buffer
from hypothesis import given, settings
from hypothesis import strategies as st

NO = np.zeros(1, bool)


@st.composite
def histories(draw):
    num_envs = draw(st.integers(1, 3))
    flag = st.sampled_from([False, False, False, True])
    row = st.lists(flag, min_size=num_envs, max_size=num_envs)
    return num_envs, draw(st.lists(st.tuples(row, row), min_size=1, max_size=30))


@settings(max_examples=150, deadline=None)
@given(
    history=histories(),
    rows=st.integers(1, 12),
    n_step=st.integers(1, 5),
    gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    prioritized=st.booleans(),
)
def test_every_transition_is_what_the_model_says(history, rows, n_step, gamma, prioritized):
    num_envs, steps = history
    world, model = World(num_envs), Model(num_envs, n_step, gamma)
    buffer = vector_buffer(
        rows * num_envs, num_envs, n_step=n_step, gamma=gamma, prioritized=prioritized
    )
    for ends in steps:
        step = world.step(*ends)
        buffer.add(*step)
        model.add(*step)
    if prioritized:
        # One draw from each of equal parts: every transition is there.
        batch = buffer.sample(len(buffer))
        assert set(batch.index) == set(range(buffer.inserted - len(buffer), buffer.inserted))
    else:
        batch = buffer.sample_many(4, len(buffer))
    assert batch.reward.dtype == batch.discount.dtype == np.float32
    model.check(batch)


def three_steps(terminated, truncated, n_step=3):
    """Rewards 1, 2, 4 with gamma 0.5; the second step ends as told; return the first transition."""
    buffer = vector_buffer(4, 1, n_step=n_step, gamma=0.5)
    for t, reward in enumerate((1.0, 2.0, 4.0)):
        obs, next_obs = np.full((1, 3), 10.0 * t), np.full((1, 3), 10.0 * t + 10)
        if t == 1:
            next_obs += 5  # the final observation; the next episode starts at 20
        second = np.array([t == 1])
        buffer.add(obs, NO.astype(int), [reward], next_obs, second & terminated, second & truncated)
    batch = buffer.sample_many(32, 1)
    row = np.flatnonzero(batch.index == 0)[0]
    return float(batch.reward[row, 0]), float(batch.next_obs[row, 0, 0]), batch.discount[row, 0]


@pytest.mark.parametrize(
    ("terminated", "truncated", "n_step", "expected"),
    [
        (False, False, 1, (1.0, 10.0, 0.5)),
        (False, False, 3, (3.0, 30.0, 0.125)),
        (False, False, 9, (3.0, 30.0, 0.125)),  # the newest row ends it
        (True, False, 3, (2.0, 25.0, 0.0)),
        (False, True, 3, (2.0, 25.0, 0.25)),  # from the final observation, after two steps
        (True, True, 3, (2.0, 25.0, 0.0)),  # terminated counts
        (True, False, 1, (1.0, 10.0, 0.5)),  # the end lies behind it
    ],
)
def test_golden_numbers(terminated, truncated, n_step, expected):
    assert three_steps(terminated, truncated, n_step) == expected


def test_a_transition_grows_as_more_steps_arrive():
    world, buffer = World(1), vector_buffer(8, 1, n_step=3, gamma=0.5)
    seen = []
    for _ in range(5):
        buffer.add(*world.step(NO, NO))
        batch = buffer.sample_many(64, 1)
        seen.append(batch.discount[np.flatnonzero(batch.index == 0)[0], 0])
    assert seen == [0.5, 0.25, 0.125, 0.125, 0.125]
