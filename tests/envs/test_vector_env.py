"""What a VectorEnv promises: for both backends, and step by step for envs that are known."""

import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
from scripted_envs import Scripted, Walk

from muster.envs import EnvError, Episode, VectorEnv, make_envs, true_next_obs
from muster.seeding import derive_seed, generator

BACKENDS = ["gymnasium", "envpool"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def cartpole(backend, num_envs=4, seed=0, **kwargs):
    return make_envs("CartPole-v1", num_envs, seed, backend, **kwargs)


def random_actions(num_envs, count, n=2):
    return generator(0, "test").integers(0, n, (count, num_envs))


def next_cartpole(obs, action):
    """Cart and pole after 0.02 s, as in the paper of Barto, Sutton and Anderson (1983)."""
    x, v, angle, spin = np.float64(obs).T
    force = np.where(action == 1, 10.0, -10.0)
    sin, cos = np.sin(angle), np.cos(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    move = push - 0.05 * turn * cos / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * move, angle + 0.02 * spin, spin + 0.02 * turn], 1)


def test_the_arrays_have_these_shapes_and_dtypes(backend):
    with cartpole(backend) as envs:
        assert isinstance(envs, VectorEnv)
        assert (envs.env_id, envs.num_envs, envs.seed) == ("CartPole-v1", 4, 0)
        assert envs.backend == backend
        assert envs.single_action_space == gym.spaces.Discrete(2)
        assert envs.single_observation_space.shape == (4,)
        assert envs.single_observation_space.dtype == np.float32
        obs = envs.reset()
        assert (obs.shape, obs.dtype) == ((4, 4), np.float32)
        obs, reward, terminated, truncated, info = envs.step(np.zeros(4, np.int64))
        assert (obs.shape, obs.dtype) == ((4, 4), np.float32)
        assert (reward.shape, reward.dtype) == ((4,), np.float32)
        assert (terminated.shape, terminated.dtype) == ((4,), np.bool_)
        assert (truncated.shape, truncated.dtype) == ((4,), np.bool_)
        assert sorted(info) == ["episodes", "final_obs"] and info["episodes"] == []


def test_every_row_is_a_true_transition_and_none_is_a_dummy(backend):
    with cartpole(backend, max_episode_steps=30) as envs:
        obs = envs.reset()
        assert (abs(obs) <= 0.05).all()
        ends = 0
        for action in random_actions(4, 400):
            next_obs, reward, terminated, truncated, info = envs.step(action)
            ended = terminated | truncated
            true_next = true_next_obs(next_obs, ended, info)
            np.testing.assert_allclose(true_next, next_cartpole(obs, action), atol=1e-5)
            fallen = (abs(true_next[:, 0]) > 2.4) | (abs(true_next[:, 2]) > math.radians(12))
            if backend == "envpool":  # which says truncated only, where both are true
                fallen &= ~truncated
            assert (terminated == fallen).all()
            assert (reward == 1.0).all()
            assert (abs(next_obs[ended]) <= 0.05).all()  # the first ones of the next episodes
            assert (next_obs[~ended] == true_next[~ended]).all()
            ends += ended.sum()
            obs = next_obs
        assert ends > 20


def test_episodes_are_counted_and_numbered_by_env(backend):
    with cartpole(backend, max_episode_steps=15) as envs:
        envs.reset()
        lengths, numbers, seen = np.zeros(4, int), np.zeros(4, int), {"cut": 0, "fallen": 0}
        for action in random_actions(4, 200):
            _, _, terminated, truncated, info = envs.step(action)
            lengths += 1
            ended = np.flatnonzero(terminated | truncated)
            expected = [Episode(e, numbers[e], float(lengths[e]), lengths[e]) for e in ended]
            assert info["episodes"] == expected
            assert (truncated == (lengths == 15)).all()
            seen["cut"] += truncated.sum()
            seen["fallen"] += (terminated & ~truncated).sum()
            lengths[ended], numbers[ended] = 0, numbers[ended] + 1
        assert seen["cut"] > 5 and seen["fallen"] > 5


def test_what_was_returned_is_never_changed_later(backend):
    with cartpole(backend, max_episode_steps=10) as envs:
        kept = [envs.reset()]
        for action in random_actions(4, 100):
            *arrays, info = envs.step(action)
            kept += [*arrays, info["final_obs"]]
        copies = [array.copy() for array in kept]
        for action in random_actions(4, 100):
            envs.step(action)
        assert all((a == b).all() for a, b in zip(kept, copies, strict=True))
        # Equal memory is allowed within one step only: final_obs is obs when nothing ended.
        observed = [array for array in kept if array.shape == (4, 4)]
        pairs = zip(observed, observed[2:], strict=False)
        assert not any(np.shares_memory(a, b) for a, b in pairs)


def test_changing_what_was_returned_changes_nothing_inside(backend):
    with cartpole(backend) as spoilt, cartpole(backend) as other:
        spoilt.reset()[:] = 7
        assert (other.reset() == spoilt.obs).all()
        for action in random_actions(4, 60):
            one, two = spoilt.step(action), other.step(action)
            for a, b in zip(one[:4], two[:4], strict=True):
                assert (a == b).all()
            one[4]["final_obs"][:] = 7
            for array in one[:4]:
                array[:] = 1
            spoilt.obs[:] = 8
            assert (spoilt.obs == other.obs).all() and (other.obs == two[0]).all()


def test_the_same_seed_gives_the_same_steps_and_another_seed_others(backend):
    def trace(seed):
        with cartpole(backend, seed=seed) as envs:
            rows = [envs.reset()]
            for action in random_actions(4, 100):
                obs, _, terminated, truncated, info = envs.step(action)
                rows += [obs, terminated, truncated, info["final_obs"]]
            return np.concatenate([np.ravel(row) for row in rows])

    one = trace(3)
    assert (one == trace(3)).all()
    assert not np.array_equal(one, trace(4))


def test_the_envs_of_one_vector_differ_from_each_other(backend):
    with cartpole(backend) as envs:
        first = envs.reset()
        assert len(np.unique(first, axis=0)) == 4
        again = envs.reset()
        assert len(np.unique(np.concatenate([first, again]), axis=0)) == 8


def test_reset_begins_the_next_episode_without_reporting_the_old_one(backend):
    with cartpole(backend, num_envs=1, max_episode_steps=2) as envs:
        envs.reset()
        envs.step([0])
        envs.reset()
        assert envs.step([0])[4]["episodes"] == []
        assert envs.step([0])[4]["episodes"] == [Episode(0, 1, 2.0, 2)]


def test_step_before_reset_and_after_close_is_refused(backend):
    envs = cartpole(backend)
    with pytest.raises(EnvError, match="they were never reset"):
        envs.step(np.zeros(4, int))
    with pytest.raises(EnvError, match="they were never reset"):
        _ = envs.obs
    envs.reset()
    envs.close()
    envs.close()
    for call in (lambda: envs.step(np.zeros(4, int)), envs.reset):
        with pytest.raises(EnvError, match="they are closed"):
            call()
    with pytest.raises(EnvError, match="they are closed"):
        envs.load_state_dict(envs.state_dict())


def test_actions_that_are_none_are_refused_and_the_step_does_not_happen(backend):
    with cartpole(backend) as envs, cartpole(backend) as other:
        envs.reset(), other.reset()
        wrong = [
            ([0, 1, 2, 0], 2),
            ([0, -1, 0, 0], 1),
            ([0.0, 1.0, np.nan, 0.0], 2),
            ([0.0, 1.0, 0.0, 0.0], 0),
            ([0, 1, 0], None),
            ([[0], [1], [0], [1]], None),
            (["0", "1", "0", "0"], None),
            ([0, None, 0, 0], None),
            ([[0], [1, 2], [0], [0]], None),
            (3, None),
        ]
        for actions, env in wrong:
            with pytest.raises(EnvError, match="action") as refused:
                envs.step(actions)
            assert (refused.value.field, refused.value.env) == ("action", env)
        assert refused.value.episode is None
        one, two = envs.step([0, 1, 1, 0]), other.step(np.array([0, 1, 1, 0], np.uint8))
        assert (one[0] == two[0]).all()


def test_a_state_holds_plain_values_and_arrays_only(backend):
    def check(value):
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            for part in value.values():
                check(part)
        elif isinstance(value, np.ndarray):
            assert value.dtype.kind in "fiub"
        else:
            assert type(value) in (type(None), bool, int, float, str)

    with cartpole(backend) as envs:
        check(envs.state_dict())
        envs.reset()
        for action in random_actions(4, 30):
            envs.step(action)
        state = envs.state_dict()
        check(state)
        assert (state["obs"] == envs.obs).all()


def test_a_state_of_other_envs_is_refused(backend):
    with cartpole(backend) as envs, cartpole(backend, seed=1) as other_seed:
        envs.reset(), other_seed.reset()
        state = envs.state_dict()
        with pytest.raises(ValueError, match="its seed is 0, and these envs have 1"):
            other_seed.load_state_dict(state)
        for change in (
            {"num_envs": 5},
            {"env_id": "Pendulum-v1"},
            {"backend": "other"},
            {"format": 2},
            {"episodes": None},
            {"episodes": np.zeros(3, int)},
            {"episodes": np.zeros(4)},
            {"obs": None},
            {"obs": np.zeros((4, 3), np.float32)},
            {"obs": np.zeros((4, 4))},
        ):
            with pytest.raises(ValueError, match="load_state_dict"):
                envs.load_state_dict({**state, **change})
        envs.step(np.zeros(4, int))  # nothing has happened to them


def test_one_step_of_scripted_envs_after_the_other_is_this():
    scripts = [
        [(2, "terminated"), (1, "truncated"), (3, "both")],
        [(3, "truncated"), (1, "terminated"), (1, "terminated")],
    ]
    made = []

    def factory():
        made.append(Scripted(scripts[len(made)]))
        return made[-1]

    envs = make_envs(factory, num_envs=2, seed=5)
    assert envs.reset().tolist() == [[0, 0], [0, 0]]
    # obs, final_obs of the envs that ended, terminated, truncated, (env, number, return, length)
    trace = [
        ([[0, 1], [0, 1]], {}, [0, 0], [0, 0], []),
        ([[1, 0], [0, 2]], {0: [0, 2]}, [1, 0], [0, 0], [(0, 0, 2, 2)]),
        ([[2, 0], [1, 0]], {0: [1, 1], 1: [0, 3]}, [0, 0], [1, 1], [(0, 1, 1, 1), (1, 0, 3, 3)]),
        ([[2, 1], [2, 0]], {1: [1, 1]}, [0, 1], [0, 0], [(1, 1, 1, 1)]),
        ([[2, 2], [3, 0]], {1: [2, 1]}, [0, 1], [0, 0], [(1, 2, 1, 1)]),
        ([[3, 0], [3, 1]], {0: [2, 3]}, [1, 0], [1, 0], [(0, 2, 3, 3)]),
        ([[3, 1], [3, 2]], {}, [0, 0], [0, 0], []),
        ([[4, 0], [4, 0]], {0: [3, 2], 1: [3, 3]}, [1, 0], [0, 1], [(0, 3, 2, 2), (1, 3, 3, 3)]),
    ]
    for obs, final, terminated, truncated, episodes in trace:
        got_obs, reward, got_terminated, got_truncated, info = envs.step([0, 1])
        assert got_obs.tolist() == obs
        assert reward.tolist() == [1, 1]
        assert got_terminated.tolist() == terminated and got_truncated.tolist() == truncated
        assert [tuple(episode) for episode in info["episodes"]] == episodes
        assert {env: info["final_obs"][env].tolist() for env in final} == final
        expected = [final.get(env, obs[env]) for env in (0, 1)]
        ended = got_terminated | got_truncated
        assert true_next_obs(got_obs, ended, info).tolist() == expected
    for index, env in enumerate(made):
        assert env.seeds == [derive_seed(5, "env", index, "episode", n) for n in range(5)]
        assert env.actions == [index] * 8


def test_the_loop_does_what_gymnasiums_own_same_step_vector_env_does():
    class OurSeeds(gym.Wrapper):
        def __init__(self, env, index):
            super().__init__(env)
            self.index, self.number = index, -1

        def reset(self, *, seed=None, options=None):
            self.number += 1
            ours = derive_seed(0, "env", self.index, "episode", self.number)
            return self.env.reset(seed=ours, options=options)

    def maker(index):
        return lambda: OurSeeds(gym.make("CartPole-v1", max_episode_steps=25), index)

    theirs = gym.vector.SyncVectorEnv(
        [maker(index) for index in range(5)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    ours = make_envs("CartPole-v1", 5, max_episode_steps=25)
    assert (ours.reset() == theirs.reset()[0]).all()
    ends = 0
    for action in random_actions(5, 300):
        obs, reward, terminated, truncated, info = ours.step(action)
        their_obs, their_reward, their_terminated, their_truncated, their_info = theirs.step(action)
        assert (obs == their_obs).all() and (reward == their_reward).all()
        assert (terminated == their_terminated).all() and (truncated == their_truncated).all()
        for env in np.flatnonzero(terminated | truncated):
            assert (info["final_obs"][env] == their_info["final_obs"][env]).all()
            ends += 1
    assert ends > 30
    theirs.close()


def test_true_next_obs_copies_only_when_it_has_to():
    obs, final = np.zeros((3, 2)), np.ones((3, 2))
    none, one = np.zeros(3, bool), np.array([False, True, False])
    info = {"final_obs": final, "episodes": []}
    assert true_next_obs(obs, none, info) is obs
    assert true_next_obs(obs, one, info).tolist() == [[0, 0], [1, 1], [0, 0]]
    assert (obs == 0).all()
    both = true_next_obs({"a": obs, "b": obs + 5}, one, {"final_obs": {"a": final, "b": final}})
    assert both["a"][:, 0].tolist() == [0, 1, 0] and both["b"][:, 0].tolist() == [5, 1, 5]


def test_returns_are_added_up_in_float64_whatever_type_a_reward_has():
    class Paying(Scripted):
        rewards = (np.float32(0.1), 0.1, np.float64(0.1), 1, True, np.array(0.5), np.int8(-2))

        def reward(self):
            return self.rewards[self.count - 1]

    envs = make_envs(lambda: Paying([(7, "terminated")]))
    envs.reset()
    rows = [envs.step([0]) for _ in range(7)]
    assert [float(row[1][0]) for row in rows] == pytest.approx([0.1, 0.1, 0.1, 1, 1, 0.5, -2])
    expected = 0.0
    for reward in Paying.rewards:
        expected += float(reward)
    assert rows[-1][4]["episodes"] == [Episode(0, 0, expected, 7)]


def test_flags_of_numpy_and_zero_or_one_count_as_booleans():
    class Flagging(Scripted):
        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            kinds = (np.bool_, int, np.array, bool)
            kind = kinds[self.count % 4]
            return obs, reward, kind(terminated), kind(truncated), info

    envs = make_envs(lambda: Flagging([(5, "terminated"), (6, "truncated")]))
    envs.reset()
    flags = [tuple(row[0] for row in envs.step([0])[2:4]) for _ in range(11)]
    assert flags == [(False, False)] * 4 + [(True, False)] + [(False, False)] * 5 + [(False, True)]


def test_an_episode_may_be_a_single_step_long_for_ever():
    envs = make_envs(lambda: Scripted([(1, "both")]), num_envs=2)
    envs.reset()
    for number in range(600):
        obs, _, terminated, truncated, info = envs.step([0, 0])
        assert terminated.all() and truncated.all()
        assert obs[0].tolist() == [number + 1, 0] and info["final_obs"][0].tolist() == [number, 1]
        assert info["episodes"] == [Episode(env, number, 1.0, 1) for env in (0, 1)]


def test_leaving_the_with_block_closes_every_env():
    made = []

    def factory():
        made.append(Scripted())
        return made[-1]

    with make_envs(factory, num_envs=3):
        assert [env.closed for env in made] == [0, 0, 0]
    assert [env.closed for env in made] == [1, 1, 1]


def test_a_step_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = make_envs(Walk, num_envs=2)
        envs.reset()
        for _ in range(30):
            envs.step([0, 2])
