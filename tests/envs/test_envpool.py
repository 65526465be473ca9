"""What is special about EnvPool, beside what every backend promises (test_vector_env)."""

import numpy as np
import pytest

from muster.envs import EnvError, make_envs
from muster.errors import MusterWarning, OptionError
from muster.seeding import derive_seed

envpool = pytest.importorskip("envpool")


def test_the_steps_are_those_of_the_bare_pool_without_its_dummy_rows():
    """Also where an episode is only a life: the game goes on, and must not be reset with it."""
    kwargs = {"episodic_life": True, "max_num_players": 1}
    envs = make_envs("Breakout-v5", num_envs=1, seed=0, **kwargs)
    bare = envpool.make(
        "Breakout-v5",
        env_type="gymnasium",
        num_envs=1,
        seed=[derive_seed(0, "env", 0, "episode", 0) % 2**31],
        **kwargs,
    )
    assert (envs.reset() == bare.reset()[0]).all()
    ends = 0
    for number in range(250):
        action = np.array([number % 4])
        obs, reward, terminated, truncated, info = envs.step(action)
        bare_obs, bare_reward, bare_terminated, bare_truncated, _ = bare.step(action)
        assert (info["final_obs"] == bare_obs).all() and (reward == bare_reward).all()
        assert (terminated == bare_terminated).all() and (truncated == bare_truncated).all()
        if terminated[0] or truncated[0]:
            ends += 1
            bare_obs = bare.step(action)[0]  # the dummy step
        assert (obs == bare_obs).all()
    assert ends >= 6  # more than the five lives of a game


def test_loading_a_state_restarts_all_episodes_says_so_and_is_the_same_every_time():
    with make_envs("CartPole-v1", 3, backend="envpool") as envs:
        envs.reset()
        for _ in range(30):
            envs.step([0, 1, 0])
        state = envs.state_dict()
    rows = []
    for used in range(2):
        with make_envs("CartPole-v1", 3, backend="envpool") as other:
            for _ in range(used):
                other.reset()
            with pytest.warns(MusterWarning, match="the 3 running episodes of 'CartPole-v1' resta"):
                other.load_state_dict(state)
            assert (other.state_dict()["episodes"] == state["episodes"] + 1).all()
            assert (other.state_dict()["lengths"] == 0).all()
            rows.append([other.obs, *(other.step([0, 1, 0])[0] for _ in range(30))])
    assert np.array_equal(rows[0], rows[1])
    assert not (rows[0][0] == state["obs"]).any()


def test_a_state_from_before_the_first_reset_is_taken_without_a_word():
    with make_envs("CartPole-v1", 2, backend="envpool") as envs:
        state = envs.state_dict()
        first = envs.reset()
    with make_envs("CartPole-v1", 2, backend="envpool") as other:
        other.load_state_dict(state)
        assert (other.reset() == first).all()


def test_float64_and_dict_observations_are_converted():
    with make_envs("HalfCheetah-v5", 2, backend="envpool") as envs:
        assert envs.single_observation_space.dtype == np.float32
        assert envs.reset().dtype == np.float32
        assert envs.step(np.zeros((2, 6)))[0].dtype == np.float32
    with make_envs("FrozenLake-v1", 2, backend="envpool") as envs:
        assert envs.reset().dtype == np.int64
    with make_envs("CheetahRun-v1", 2, backend="envpool") as envs:
        obs = envs.reset()
        assert {name: part.dtype.name for name, part in obs.items()} == {
            "position": "float32",
            "velocity": "float32",
        }
        obs = envs.step(np.zeros((2, 6)))[0]
        assert obs["position"].shape == (2, 8)


def test_options_that_would_break_the_promise_are_refused():
    for name, value in (("batch_size", 2), ("env_seed", [1, 2]), ("env_type", "dm")):
        with pytest.raises(OptionError, match=f"{name}="):
            make_envs("CartPole-v1", 4, backend="envpool", **{name: value})
    with pytest.raises(EnvError, match="players"):
        make_envs("TicTacToe-v1", 2, backend="envpool")


def test_a_value_that_is_not_finite_is_refused_with_its_env():
    envs = make_envs("Pendulum-v1", 3, backend="envpool")
    envs.reset()
    envs.step(np.zeros((3, 1)))
    before = envs.state_dict()
    real = envs._pool.step

    def spoilt(column):
        def step(actions, *ids):
            result = list(real(actions, *ids))
            result[column] = np.array(result[column])
            result[column][1] = np.nan
            return tuple(result)

        return step

    for column, field in ((0, "observation"), (1, "reward")):
        envs._pool = type("Pool", (), {"step": staticmethod(spoilt(column)), "close": int})
        envs._unready = None
        with pytest.raises(EnvError, match=f"{field} of env 1 of 'Pendulum-v1'") as caught:
            envs.step(np.zeros((3, 1)))
        error = caught.value
        assert (error.env, error.episode, error.step, error.field) == (1, 0, 2, field)
        assert (envs.state_dict()["obs"] == before["obs"]).all()
        with pytest.raises(EnvError, match="the last step failed"):
            envs.step(np.zeros((3, 1)))


def test_rows_in_another_order_are_refused():
    envs = make_envs("CartPole-v1", 2, backend="envpool")
    envs.reset()
    real = envs._pool.step

    def shuffled(actions, *ids):
        *arrays, info = real(actions, *ids)
        return *arrays, {**info, "env_id": info["env_id"][::-1]}

    envs._pool = type("Pool", (), {"step": staticmethod(shuffled)})
    with pytest.raises(EnvError, match="returned rows of"):
        envs.step([0, 0])
