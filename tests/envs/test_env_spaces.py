"""Which spaces there are, and what becomes of them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted_envs import Acting, Scripted, Showing, Walk

from muster.envs import EnvError, make_envs


def test_float64_observations_become_float32():
    envs = make_envs(Walk, num_envs=2)
    assert envs.single_observation_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert envs.reset().dtype == np.float32
    assert envs.step([0, 1])[0].dtype == np.float32


def test_bounds_that_float32_cannot_hold_become_infinite():
    box = spaces.Box(-1.7e308, 1.7e308, (1,), np.float64)
    envs = make_envs(lambda: Showing(box, [np.zeros(1)]))
    assert envs.single_observation_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)


def test_bytes_and_other_integers_stay_what_they_are():
    for dtype in (np.uint8, np.int32, np.int64):
        image = np.arange(12, dtype=dtype).reshape(2, 3, 2)
        space = spaces.Box(0, 100, (2, 3, 2), dtype)
        envs = make_envs(lambda s=space, i=image: Showing(s, [i]), num_envs=3)
        assert envs.single_observation_space == space
        obs = envs.reset()
        assert obs.dtype == dtype and obs.shape == (3, 2, 3, 2) and (obs == image).all()


def test_an_observation_may_be_a_list_or_of_a_smaller_type():
    space = spaces.Box(-10, 10, (2,), np.float32)
    for value in ([1, 2], (1.0, 2.0), np.array([1, 2], np.int8), np.array([1, 2], np.float16)):
        obs = make_envs(lambda v=value: Showing(space, [v])).reset()
        assert obs.tolist() == [[1, 2]] and obs.dtype == np.float32
    bigger = spaces.Box(-10, 10, (2,), np.int64)
    obs = make_envs(lambda: Showing(bigger, [np.array([1, 2], np.int16)])).reset()
    assert obs.tolist() == [[1, 2]] and obs.dtype == np.int64


def test_a_box_may_have_no_dimension():
    obs = make_envs(lambda: Showing(spaces.Box(0, 1, (), np.float32), [np.float32(0.5)]), 2).reset()
    assert obs.tolist() == [0.5, 0.5]


def test_discrete_observations_are_int64():
    space = spaces.Discrete(3, start=5)
    values = [5, np.int64(6), np.array(7), np.int32(5)]
    envs = make_envs(lambda: Showing(space, values), num_envs=2)
    assert envs.single_observation_space == space
    rows = [envs.reset(), *(envs.step([0, 0])[0] for _ in range(3))]
    assert [row.tolist() for row in rows] == [[5, 5], [6, 6], [7, 7], [5, 5]]
    assert all(row.dtype == np.int64 for row in rows)


def test_dict_observations_are_dicts_of_arrays():
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "speed": spaces.Box(-1, 1, (3,), np.float64),
            "goal": spaces.Discrete(4),
        }
    )

    class Dicts(Scripted):
        observation_space = space

        def show(self):
            return {
                "image": np.full((2, 2), self.count, np.uint8),
                "speed": np.full(3, self.episode, np.float64),
                "goal": self.count,
                "unknown": "is left out",
            }

    envs = make_envs(lambda: Dicts([(2, "terminated")]), num_envs=2)
    assert sorted(envs.single_observation_space) == ["goal", "image", "speed"]
    assert envs.single_observation_space["speed"].dtype == np.float32
    first = envs.reset()
    assert {name: (part.shape, part.dtype.name) for name, part in first.items()} == {
        "goal": ((2,), "int64"),
        "image": ((2, 2, 2), "uint8"),
        "speed": ((2, 3), "float32"),
    }
    envs.step([0, 0])
    obs, _, terminated, _, info = envs.step([0, 0])
    assert terminated.all()
    assert obs["goal"].tolist() == [0, 0] and info["final_obs"]["goal"].tolist() == [2, 2]
    assert (obs["speed"] == 1).all() and (info["final_obs"]["speed"] == 0).all()
    assert (first["speed"] == 0).all()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}),
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
    ],
    ids=lambda space: type(space).__name__,
)
def test_other_observation_spaces_are_refused_with_a_way_out(space):
    env = Showing(space, [None])
    with pytest.raises(EnvError, match="not supported") as refused:
        make_envs(lambda: env)
    assert "FlattenObservation" in str(refused.value)
    assert env.closed == 1


def test_several_categories_are_rows_of_whole_numbers_within_their_bounds():
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    good, bad = np.array([1, 7]), np.array([1, 8])
    env = Showing(space, [good, bad])
    with make_envs(lambda: env) as envs:
        assert envs.single_observation_space == space
        obs = envs.reset()
        assert obs.tolist() == [[1, 7]] and obs.dtype == np.int64
        with pytest.raises(EnvError, match=r"\[1\] is 8"):
            envs.step([0])


def test_bits_are_observed_as_small_numbers():
    env = Showing(spaces.MultiBinary(3), [np.array([1, 0, 1], np.int8)] * 2)
    with make_envs(lambda: env) as envs:
        assert envs.single_observation_space == spaces.Box(0, 1, (3,), np.int8)
        assert envs.reset().tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_other_action_spaces_are_refused(space):
    with pytest.raises(EnvError, match=r"actions in .* are not supported"):
        make_envs(lambda: Acting(space))


def test_discrete_actions_count_from_zero_wherever_the_env_starts():
    env = Acting(spaces.Discrete(3, start=-1))
    envs = make_envs(lambda: env)
    assert envs.single_action_space == spaces.Discrete(3)
    envs.reset()
    for action in (0, 2, 1):
        envs.step([action])
    assert env.actions == [-1, 1, 0] and all(type(action) is int for action in env.actions)
    with pytest.raises(EnvError, match="is 3"):
        envs.step([3])


def test_more_actions_than_are_usual_can_be_taken():
    env = Acting(spaces.Discrete(100_000))
    envs = make_envs(lambda: env)
    envs.reset()
    envs.step([99_999])
    assert env.actions == [99_999]
    with pytest.raises(EnvError, match="is 100000"):
        envs.step([100_000])


def test_multi_discrete_actions_count_from_zero_and_are_checked_by_column():
    made = []

    def factory():
        made.append(Acting(spaces.MultiDiscrete([2, 5], start=[0, 10])))
        return made[-1]

    envs = make_envs(factory, num_envs=2)
    assert envs.single_action_space == spaces.MultiDiscrete([2, 5])
    envs.reset()
    envs.step([[1, 4], [0, 0]])
    assert [env.actions[0].tolist() for env in made] == [[1, 14], [0, 10]]
    assert made[0].actions[0].dtype == np.int64
    for wrong in ([[1, 4], [2, 0]], [[1, 4], [1, -1]]):
        with pytest.raises(EnvError, match=r"action of env 1 .* is \["):
            envs.step(wrong)
    with pytest.raises(EnvError, match="integers"):
        envs.step([[1.0, 4.0], [0.0, 0.0]])


def test_box_actions_are_given_as_they_are_in_the_dtype_of_the_space():
    env = Acting(spaces.Box(-1, 1, (2,), np.float32))
    envs = make_envs(lambda: env)
    envs.reset()
    envs.step(np.array([[7.5, -9.0]]))  # outside of the bounds: clipping is the policy's choice
    assert env.actions[0].tolist() == [7.5, -9.0] and env.actions[0].dtype == np.float32


def test_an_env_that_changes_its_action_changes_neither_the_policys_nor_the_remembered_one():
    class Rude(Acting):
        def step(self, action):
            action[:] = 99
            return super().step(action)

    envs = make_envs(lambda: Rude(spaces.Box(-1, 1, (2,), np.float32)))
    envs.reset()
    mine = np.array([[0.5, 0.25]], np.float32)
    envs.step(mine)
    assert mine.tolist() == [[0.5, 0.25]]
    assert envs.state_dict()["actions"].tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_box_actions_that_are_not_finite_are_refused(value):
    envs = make_envs("Pendulum-v1", num_envs=3)
    envs.reset()
    before = envs.state_dict()
    with pytest.raises(EnvError, match="action of env 2 of 'Pendulum-v1'") as refused:
        envs.step(np.array([[0.0], [1.0], [value]]))
    error = refused.value
    assert (error.field, error.env, error.episode, error.step) == ("action", 2, 0, 1)
    assert (envs.obs == before["obs"]).all()
    envs.step(np.zeros((3, 1)))  # the step did not happen, so the next one may


def test_float_actions_for_an_integer_box_are_refused():
    envs = make_envs(lambda: Acting(spaces.Box(0, 5, (1,), np.int32)))
    envs.reset()
    with pytest.raises(EnvError, match="integers"):
        envs.step([[1.5]])
    envs.step([[1]])


def test_envs_with_different_spaces_do_not_go_together():
    sizes = iter([2, 3])
    with pytest.raises(EnvError, match=r"action_space of env 1 .* is Discrete\(3\)"):
        make_envs(lambda: Acting(spaces.Discrete(next(sizes))), num_envs=2)


def test_real_envs_of_every_supported_kind_can_be_stepped():
    for env_id in (
        "CartPole-v1",
        "Pendulum-v1",
        "FrozenLake-v1",
        "CliffWalking-v1",
        "MountainCar-v0",
    ):
        with make_envs(env_id, num_envs=2) as envs:
            obs = envs.reset()
            envs.single_action_space.seed(0)
            for _ in range(5):
                assert all(row in envs.single_observation_space for row in obs)
                sample = [envs.single_action_space.sample() for _ in range(2)]
                obs = envs.step(np.array(sample))[0]


def test_a_wrapper_may_be_put_around_an_env():
    factory = lambda: gym.wrappers.FlattenObservation(gym.make("Blackjack-v1"))  # noqa: E731
    with make_envs(factory) as envs:
        assert envs.reset().shape == (1, 45)
