"""What is stored and what uniform sampling gives back."""

import sys
import threading

import numpy as np
import pytest
from gymnasium import spaces
from histories import (
    ACTION,
    VECTOR,
    Model,
    World,
    assert_near_chi_square,
    assert_same,
    run,
    vector_buffer,
)

from muster import OptionError
from muster.data import ReplayBuffer, StepBlock

NO = np.zeros(2, bool)


def filled(rows=10, num_envs=2, steps=10, **options):
    buffer, world = vector_buffer(rows * num_envs, num_envs, **options), World(num_envs)
    run(buffer, world, steps, np.random.default_rng(0))
    return buffer, world


def test_every_transition_is_drawn_equally_often():
    buffer, _ = filled(rows=50, steps=120)
    batch = buffer.sample_many(1000, 100)
    assert set(batch.index.ravel()) == set(range(140, 240))
    counts = np.bincount(batch.index.ravel() - 140, minlength=100)
    assert_near_chi_square(counts, np.full(100, 1000.0))


def test_draws_of_one_batch_do_not_depend_on_each_other():
    buffer, _ = filled(rows=5, steps=5)
    pairs = buffer.sample_many(20_000, 2).index
    counts = np.bincount(pairs[:, 0] * 10 + pairs[:, 1], minlength=100)
    assert_near_chi_square(counts, np.full(100, 200.0))


def test_another_seed_draws_other_transitions_and_the_same_seed_the_same():
    draws = [filled(seed=seed)[0].sample(16).index.tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_the_oldest_rows_are_overwritten_first():
    buffer, world = filled(rows=4, steps=0)
    for steps in range(1, 12):
        run(buffer, world, 1, np.random.default_rng(steps))
        assert buffer.inserted == 2 * steps
        assert len(buffer) == min(2 * steps, 8)
        drawn = set(buffer.sample_many(64, 1).index.ravel())
        assert drawn == set(range(buffer.inserted - len(buffer), buffer.inserted))


def test_sample_many_draws_what_as_many_calls_of_sample_would():
    many, one_by_one = filled(steps=17, n_step=3)[0], filled(steps=17, n_step=3)[0]
    for count, batch_size in ((3, 8), (1, 5), (7, 1)):
        batch = many.sample_many(count, batch_size)
        for row in range(count):
            single = one_by_one.sample(batch_size)
            for name in set(single.__slots__) - {"columns"}:
                np.testing.assert_array_equal(getattr(batch, name)[row], getattr(single, name))
    assert_same(many.sample(4), one_by_one.sample(4))


def test_sample_is_none_while_there_is_too_little():
    buffer, world = filled(rows=20, steps=0, min_size=10)
    rng = np.random.default_rng(0)
    assert buffer.sample(1) is None
    run(buffer, world, 4, rng)
    assert buffer.sample(1) is None and buffer.sample_many(2, 1) is None
    run(buffer, world, 1, rng)
    assert buffer.sample(10).index.shape == (10,)
    assert buffer.sample(11) is None and buffer.sample_many(2, 11) is None


def test_asking_too_early_does_not_change_what_is_drawn_later():
    patient, hasty = filled(steps=3)[0], filled(steps=3)[0]
    assert hasty.sample(7) is None
    assert_same(patient.sample(6), hasty.sample(6))


def test_the_tutorials_face_takes_counters_and_whole_collections():
    buffer, twin = vector_buffer(40, 2), vector_buffer(40, 2)
    world, rng = World(2), np.random.default_rng(5)
    steps = [world.step(*(rng.random((2, 2)) < 0.3)) for _ in range(6)]
    for step in steps:
        twin.add(*step)
    data = StepBlock.of(*(np.stack(each) for each in zip(*steps, strict=True)))
    assert len(data) == 12
    buffer.push(data, cur_collector_envstep=12)
    assert buffer.inserted == 12
    assert_same(buffer.sample(8, 3), twin.sample(8))


def test_a_collection_that_does_not_fit_is_not_stored_in_part():
    buffer, world = vector_buffer(40, 2), World(2)
    steps = [world.step(NO, NO) for _ in range(3)]
    data = StepBlock.of(*(np.stack(each) for each in zip(*steps, strict=True)))
    data.truncated = data.truncated[:2]
    with pytest.raises(OptionError, match="truncated has shape"):
        buffer.push(data)
    assert buffer.inserted == 0


def test_what_was_added_is_copied_and_so_is_what_is_sampled():
    buffer, model, world = vector_buffer(20, 2, gamma=0.9), Model(2), World(2)
    step = world.step(NO, NO)
    model.add(*(each.copy() for each in step))
    buffer.add(*step)
    for each in step:
        each[:] = 0
    batch = buffer.sample(2)
    batch.obs[:] = 7
    batch.next_obs[:] = 7
    model.check(buffer.sample_many(8, 2))


IMAGE = spaces.Box(0, 255, (8, 8, 2), np.uint8)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Box(-1, 1, (3,), np.float64), np.float32),
        (spaces.Box(-1, 1, (), np.float32), np.float32),
        (spaces.Box(-9, 9, (2, 2), np.int32), np.float32),
        (IMAGE, np.uint8),
        (spaces.Discrete(7), np.int64),
        (spaces.MultiDiscrete([3, 4]), np.int64),
    ],
)
def test_observations_and_actions_come_back_as_they_were(space, dtype):
    """Uint8 stays uint8, other Box values become float32, discrete ones int64."""
    buffer = ReplayBuffer(8, space, space, num_envs=2, n_step=2)
    space.seed(3)
    draw = [np.stack([space.sample(), space.sample()]) for _ in range(9)]
    for t in range(8):
        buffer.add(draw[t], draw[t], np.zeros(2), draw[t + 1], NO, np.array([t == 5, False]))
    batch = buffer.sample_many(16, 8)
    assert batch.obs.dtype == batch.next_obs.dtype == batch.action.dtype == dtype
    assert batch.obs.shape == batch.next_obs.shape == batch.action.shape == (16, 8, *space.shape)
    for row in np.ndindex(16, 8):
        t, env = divmod(batch.index[row], 2)
        last = t + 1 if t == 7 or (t == 5 and env == 0) else t + 2
        np.testing.assert_array_equal(batch.obs[row], draw[t][env].astype(dtype))
        np.testing.assert_array_equal(batch.action[row], draw[t][env].astype(dtype))
        np.testing.assert_array_equal(batch.next_obs[row], draw[last][env].astype(dtype))


def test_dict_observations_come_back_as_dicts():
    space = spaces.Dict({"speed": VECTOR, "camera": IMAGE, "gear": spaces.Discrete(6)})
    buffer = ReplayBuffer(12, space, ACTION, num_envs=2)
    space.seed(0)
    keys = ("speed", "camera", "gear")
    seen = []
    for _ in range(11):
        one, two = space.sample(), space.sample()
        seen.append({key: np.stack([one[key], two[key]]) for key in keys})
    ends = [np.array([t % 3 == 0, t == 9]) for t in range(10)]
    # At an end `seen[t + 1]` is final; the next episode starts with itself upside down.
    start = seen[0]
    for t in range(10):
        buffer.add(start, np.zeros(2, int), np.zeros(2), seen[t + 1], ends[t], NO)
        start = {key: value.copy() for key, value in seen[t + 1].items()}
        for value in start.values():
            value[ends[t]] = value[ends[t]][::-1] // 2
    batch = buffer.sample(12)
    assert set(batch.obs) == set(batch.next_obs) == set(keys)
    assert batch.obs["camera"].dtype == np.uint8 and batch.obs["gear"].shape == (12,)
    for row, number in enumerate(batch.index):
        t, env = divmod(number, 2)
        for key in keys:
            np.testing.assert_array_equal(batch.next_obs[key][row], seen[t + 1][key][env])


def test_each_observation_is_stored_once():
    """Room for one of each transition, one row more, and some for final observations."""
    camera = spaces.Box(0, 255, (32, 32), np.uint8)
    buffer = ReplayBuffer(1000, camera, ACTION, num_envs=4)
    frame = np.zeros((4, 32, 32), np.uint8)
    rng = np.random.default_rng(0)
    for _ in range(3000):
        ended = rng.random(4) < 0.02
        buffer.add(frame, np.zeros(4, int), np.zeros(4), frame, ended, ended)
    per_transition = 1024 + 8 + 4 + 1 + 4  # obs, action, reward, end, place of the final obs
    # 20 of the last 1000 ended on average; 64 places have been enough at all times.
    assert buffer.nbytes <= 1004 * per_transition + 64 * 1024


def test_room_for_final_observations_never_exceeds_one_per_transition():
    buffer, world = vector_buffer(200, 2), World(2)
    model = Model(2)
    for _ in range(500):
        step = world.step([True, True], NO)
        buffer.add(*step)
        model.add(*step)
    assert buffer.nbytes <= 202 * (12 + 8 + 4 + 1 + 4) + 200 * 12
    model.check(buffer.sample_many(4, 200))


def test_episodes_that_are_cut_do_not_run_into_the_next_ones():
    buffer, model, world = vector_buffer(20, 2, n_step=3, gamma=0.9), Model(2, 3), World(2)
    buffer.cut_episodes()  # of nothing yet
    for t in range(8):
        step = world.step([t == 3, False], NO)
        buffer.add(*step)
        model.add(*step)
        if t in (3, 5):
            buffer.cut_episodes()
            buffer.cut_episodes()
            model.cut()
            world.restart()
    model.check(buffer.sample_many(8, 16))


def test_only_the_chosen_environments_are_cut():
    buffer, world = vector_buffer(20, 2, n_step=2, gamma=0.5), World(2)
    buffer.add(*world.step(NO, NO))
    buffer.cut_episodes([False, True])
    buffer.add(*world.step(NO, NO))
    batch = buffer.sample_many(16, 4)
    discounts = dict(zip(batch.index.ravel(), batch.discount.ravel(), strict=True))
    assert discounts == {0: 0.25, 1: 0.5, 2: 0.5, 3: 0.5}


def test_threads_never_see_half_a_step():
    """One adds, one samples: every batch must be of whole transitions."""
    buffer = ReplayBuffer(8, VECTOR, ACTION, num_envs=2)
    row = np.ones((1, 3))
    done = threading.Event()

    def add():
        for t in range(4000):
            number = np.array([[2 * t], [2 * t + 1]])
            buffer.add(number * row, number[:, 0] % 5, number[:, 0], (number + 2) * row, NO, NO)
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        adder = threading.Thread(target=add)
        adder.start()
        while not done.is_set():
            batch = buffer.sample(8)
            if batch is not None:
                np.testing.assert_array_equal(batch.obs, batch.index[:, None] * row)
                np.testing.assert_array_equal(batch.next_obs, (batch.index + 2)[:, None] * row)
                np.testing.assert_array_equal(batch.reward, batch.index)
    finally:
        sys.setswitchinterval(interval)
        adder.join()


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("obs", np.zeros(3, np.float32), "obs has shape (3,)"),
        ("obs", np.zeros((3, 3), np.float32), "obs has shape (3, 3)"),
        ("next_obs", np.zeros((2, 1), np.float32), "next_obs has shape (2, 1)"),
        ("obs", {"camera": np.zeros((2, 3))}, "obs has shape ()"),
        ("action", np.zeros(2), "action is float64"),
        ("action", np.zeros((2, 1), int), "action has shape (2, 1)"),
        ("reward", 1.0, "reward has shape ()"),
        ("reward", np.array([None, None]), "reward is object"),
        ("terminated", np.zeros(2), "terminated is float64"),
        ("truncated", np.zeros(2, int), "truncated is int64"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_and_changes_nothing(name, value, what):
    buffer, world = vector_buffer(20, 2), World(2)
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    step = dict(zip(names, world.step(NO, NO), strict=True))
    with pytest.raises(OptionError) as caught:
        buffer.add(**(step | {name: value}))
    assert str(caught.value).startswith(what)
    assert buffer.inserted == 0
    buffer.add(**step)


def test_an_image_given_as_floats_is_refused():
    buffer = ReplayBuffer(8, IMAGE, ACTION, num_envs=2)
    floats = np.zeros((2, 8, 8, 2), np.float32)
    with pytest.raises(OptionError, match="obs is float32"):
        buffer.add(floats, np.zeros(2, int), np.zeros(2), floats, NO, NO)


def test_a_dict_without_one_of_its_keys_is_refused():
    buffer = ReplayBuffer(8, spaces.Dict({"a": VECTOR, "b": VECTOR}), ACTION, num_envs=2)
    part = {"a": np.zeros((2, 3))}
    with pytest.raises(OptionError, match=r"obs is \['a'\]"):
        buffer.add(part, np.zeros(2, int), np.zeros(2), part, NO, NO)
    with pytest.raises(OptionError, match=r"obs\['b'\] has shape \(3,\)"):
        buffer.add(part | {"b": np.zeros(3)}, np.zeros(2, int), np.zeros(2), part, NO, NO)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"capacity": 1}, "capacity=1 is not possible"),
        ({"capacity": 10.0}, "capacity=10.0 is not possible"),
        ({"num_envs": 0}, "num_envs=0 is not possible"),
        ({"n_step": 0}, "n_step=0 is not possible"),
        ({"gamma": 1.1}, "gamma=1.1 is not possible"),
        ({"gamma": float("nan")}, "gamma=nan is not possible"),
        ({"alpha": -0.1}, "alpha=-0.1 is not possible"),
        ({"beta": "high"}, "beta='high' is not possible"),
        ({"min_size": 21}, "min_size=21 is not possible"),
        ({"min_size": -1}, "min_size=-1 is not possible"),
        ({"seed": -1}, "seed=-1 is not possible"),
        ({"obs_space": spaces.Tuple([VECTOR])}, "obs_space=Tuple"),
        ({"obs_space": spaces.Dict({"a": spaces.Dict({"b": VECTOR})})}, "obs_space['a']=Dict"),
        ({"action_space": spaces.MultiBinary(3)}, "action_space=MultiBinary"),
    ],
)
def test_options_without_sense_are_refused(options, what):
    usual = {"capacity": 20, "obs_space": VECTOR, "action_space": ACTION, "num_envs": 2}
    with pytest.raises(OptionError) as caught:
        ReplayBuffer(**(usual | options))
    assert str(caught.value).startswith(what)


def test_capacity_is_rounded_down_to_whole_rows():
    assert vector_buffer(23, 4).capacity == 20


@pytest.mark.parametrize("batch_size", [0, -1, 21])
def test_a_batch_that_can_never_be_filled_is_refused(batch_size):
    buffer, _ = filled()
    with pytest.raises(OptionError, match=f"batch_size={batch_size} is not possible"):
        buffer.sample(batch_size)


def test_uniform_weights_are_one_and_priorities_without_effect():
    buffer, twin = filled()[0], filled()[0]
    batch = buffer.sample(8, beta=1.0)
    assert batch.weight.dtype == np.float32 and (batch.weight == 1).all()
    buffer.update_priorities(batch.index, np.full(8, 1e6))
    twin.sample(8)
    assert_same(buffer.sample(8), twin.sample(8))
