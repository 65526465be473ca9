"""Running episodes come back to the very step, or begin anew and say so."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from scripted_envs import Scripted, Showing, Walk, one_of_many

from muster.envs import Episode, make_envs
from muster.envs.actions import ActionLog, action_rows
from muster.errors import MusterWarning
from muster.seeding import generator


def actions_for(envs, count):
    space = envs.single_action_space
    space.seed(3)
    return [np.array([space.sample() for _ in range(envs.num_envs)]) for _ in range(count)]


def assert_same_step(one, two):
    for a, b in zip(one[:4], two[:4], strict=True):
        assert a.tobytes() == b.tobytes()
    assert one[4]["episodes"] == two[4]["episodes"]
    assert one[4]["final_obs"].tobytes() == two[4]["final_obs"].tobytes()


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "LunarLander-v3", "FrozenLake-v1"]
)
def test_real_envs_are_restored_exactly_at_random_points(env_id):
    points = set(generator(0, "points", env_id).integers(0, 230, 6).tolist()) | {0}
    with make_envs(env_id, num_envs=3, seed=1) as envs:
        envs.reset()
        actions = actions_for(envs, 250)
        states, rows = {}, []
        for number, action in enumerate(actions):
            if number in points:
                states[number] = envs.state_dict()
            rows.append(envs.step(action))
        assert any(row[4]["episodes"] for row in rows)
    with make_envs(env_id, num_envs=3, seed=1) as other, warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, state in states.items():
            other.load_state_dict(state)
            assert other.obs.tobytes() == state["obs"].tobytes()
            for action, row in zip(actions[number:][:20], rows[number:], strict=False):
                assert_same_step(other.step(action), row)


def test_a_state_can_be_taken_at_every_step_and_says_the_same_after_loading():
    envs = make_envs(lambda: Walk(7), num_envs=2)
    other = make_envs(lambda: Walk(7), num_envs=2)
    envs.reset()
    for action in actions_for(envs, 30):
        state = envs.state_dict()
        other.load_state_dict(state)
        again = other.state_dict()
        for name, value in state.items():
            same = value == again[name]
            assert same.all() if isinstance(value, np.ndarray) else same
        assert_same_step(envs.step(action), other.step(action))


def test_a_state_is_a_copy_that_later_steps_do_not_change():
    envs = make_envs(lambda: Walk(7), num_envs=2)
    envs.reset()
    envs.step([0, 2])
    state = envs.state_dict()
    before = {k: v.copy() for k, v in state.items() if isinstance(v, np.ndarray)}
    envs.load_state_dict(state)
    for action in actions_for(envs, 20):
        envs.step(action)
    assert all((state[name] == value).all() for name, value in before.items())


@pytest.mark.parametrize("kind", [list, np.uint8, np.int32, np.int64])
def test_actions_of_any_integer_type_are_remembered(kind):
    envs, other = make_envs(Walk, num_envs=2), make_envs(Walk, num_envs=2)
    envs.reset()
    for row in ([0, 2], [1, 0], [2, 2]):
        envs.step(row if kind is list else np.array(row, kind))
    assert envs.state_dict()["actions"].tolist() == [0, 1, 2, 2, 0, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(envs.state_dict())


def test_envs_that_were_never_reset_are_restored_as_such():
    envs, other = make_envs(Walk, num_envs=2), make_envs(Walk, num_envs=2)
    other.load_state_dict(envs.state_dict())
    assert (other.reset() == envs.reset()).all()
    assert (other.state_dict()["episodes"] == 0).all()


def test_dict_observations_are_restored():
    class Dicts(Walk):
        observation_space = gym.spaces.Dict({"at": Walk.observation_space})

        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return {"at": obs}, info

        def step(self, action):
            obs, *rest = super().step(action)
            return {"at": obs}, *rest

    envs, other = make_envs(Dicts, num_envs=2), make_envs(Dicts, num_envs=2)
    envs.reset()
    for action in actions_for(envs, 13):
        envs.step(action)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(envs.state_dict())
    one, two = envs.step([0, 1]), other.step([0, 1])
    assert (one[0]["at"] == two[0]["at"]).all()


def test_an_env_that_does_not_repeat_itself_begins_its_next_episode_and_says_so():
    # It counts its resets, whatever the seed: a second env object is one episode behind.
    factory = one_of_many(Walk, lambda: Scripted2([(5, "terminated")]), 1)
    envs = make_envs(factory, num_envs=3)
    envs.reset()
    for _ in range(7):
        envs.step([0, 0, 0])
    state = envs.state_dict()
    assert state["episodes"].tolist() == [0, 1, 0]
    other = make_envs(one_of_many(Walk, lambda: Scripted2([(5, "terminated")]), 1), num_envs=3)
    with pytest.warns(MusterWarning) as caught:
        other.load_state_dict(state)
    (message,) = [str(each.message) for each in caught]
    assert message == (
        "env 1 of 'factory' begins episode 2 instead of going on with episode 1: "
        "the same reset seed and actions led to another observation"
    )
    assert other.state_dict()["episodes"].tolist() == [0, 2, 0]
    assert other.state_dict()["lengths"].tolist() == [7, 0, 7]
    assert other.state_dict()["returns"][1] == 0
    assert (other.obs[[0, 2]] == envs.obs[[0, 2]]).all()
    assert other.obs[1, 0] == 100  # its second reset
    one, two = envs.step([0, 0, 0]), other.step([0, 0, 0])
    assert (one[0][[0, 2]] == two[0][[0, 2]]).all()
    for _ in range(3):
        other.step([0, 0, 0])
    assert other.step([0, 0, 0])[4]["episodes"] == [Episode(1, 2, 5.0, 5)]


class Scripted2(Scripted):
    """Shows a single number, to go with Walk."""

    observation_space = Walk.observation_space
    action_space = Walk.action_space

    def show(self):
        return np.array([100.0 * self.episode + self.count])


def test_the_sign_of_a_zero_is_a_difference():
    zeros = [np.zeros(1), np.array([-0.0])]
    space = gym.spaces.Box(-1, 1, (1,))

    class Forgetful(Showing):
        def show(self):
            return zeros[self.episode]

    envs = make_envs(lambda: Forgetful(space, zeros))
    envs.reset()
    with pytest.warns(MusterWarning, match="another observation"), pytest.raises(IndexError):
        try:
            envs.load_state_dict(envs.state_dict())
        except Exception as error:
            raise error.__cause__ from None  # the third reset has nothing to show


def test_an_env_that_pays_differently_is_not_taken_for_the_same():
    class Moody(Walk):
        made = 0

        def __init__(self):
            super().__init__()
            Moody.made += 1
            self.extra = Moody.made

        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, reward + self.extra, *rest

    envs, other = make_envs(Moody), make_envs(Moody)
    envs.reset()
    envs.step([0])
    with pytest.warns(MusterWarning, match="led to another return"):
        other.load_state_dict(envs.state_dict())


def test_an_env_that_ends_earlier_the_second_time_is_restarted():
    envs, other = make_envs(lambda: Walk(9)), make_envs(lambda: Walk(4))
    envs.reset()
    for _ in range(6):
        envs.step([0])
    with pytest.warns(MusterWarning, match="the episode ended after 4 of 6 steps"):
        other.load_state_dict(envs.state_dict())
    assert other.state_dict()["episodes"].tolist() == [1]


def test_a_state_that_does_not_fit_together_is_refused():
    envs = make_envs(lambda: Walk(9), num_envs=2)
    envs.reset()
    for _ in range(3):
        envs.step([0, 1])
    state = envs.state_dict()
    for change in (
        {"actions": state["actions"][:-1]},
        {"actions": state["actions"].astype(np.float64)},
        {"actions": state["actions"].astype(np.int8)},
        {"actions": state["actions"] + 5},
        {"actions": None},
        {"lengths": np.array([3, 4])},
        {"lengths": np.array([9, -3])},
        {"lengths": None},
        {"kept": np.array([1, 1])},
        {"kept": np.array([True, False])},
        {"returns": np.zeros(3)},
    ):
        with pytest.raises(ValueError, match="load_state_dict"):
            envs.load_state_dict({**state, **change})
    envs.step([0, 0])


def log_of(num_envs, longest):
    return ActionLog(action_rows(gym.spaces.Discrete(1000), num_envs), num_envs, longest)


def test_the_log_gives_back_the_actions_of_every_running_episode():
    log, model = log_of(3, 10_000), [[], [], []]
    rng = np.random.default_rng(0)
    for step in range(5000):
        row = rng.integers(0, 1000, 3)
        log.append(row.tobytes())
        for env in range(3):
            model[env].append(int(row[env]))
            if rng.random() < (0.002, 0.05, 0.5)[env]:
                log.restart(env)
                model[env].clear()
        if step % 100 == 0:
            for env in range(3):
                assert log.episode(env).tolist() == model[env]
                assert log.length(env) == len(model[env])
    assert log.size < 3000 * 3 * 8  # what no episode needs is not kept
    log.load([np.array([1, 2]), np.array([], int), np.array([3, 4, 5])])
    log.append(np.array([6, 7, 8]).tobytes())
    assert [log.episode(env).tolist() for env in range(3)] == [[1, 2, 6], [7], [3, 4, 5, 8]]
    assert [log.length(env) for env in range(3)] == [3, 1, 4]


def test_the_log_of_an_endless_episode_is_bounded_and_the_others_stay():
    log = log_of(2, 64)
    recent = []
    for step in range(1000):
        log.append(np.array([step, step], np.int64).tobytes())
        recent.append(step)
        if step % 20 == 0:
            log.restart(1)
            recent.clear()
        assert log.size <= 65 * 16
        assert log.episode(1).tolist() == recent
    assert log.episode(0) is None and log.length(0) == 1000
    log.restart(0)
    log.append(np.array([7, 8], np.int64).tobytes())
    assert log.episode(0).tolist() == [7]


def test_an_episode_too_long_to_be_remembered_is_restarted():
    envs, other = make_envs(lambda: Walk(10**6)), make_envs(lambda: Walk(10**6))
    envs._log = ActionLog(envs._actions, 1, longest=50)
    envs.reset()
    for _ in range(120):
        envs.step([1])
    state = envs.state_dict()
    assert state["kept"].tolist() == [False] and state["lengths"].tolist() == [120]
    with pytest.warns(MusterWarning, match="longer than the actions that muster keeps"):
        other.load_state_dict(state)
    assert other.state_dict()["episodes"].tolist() == [1]
