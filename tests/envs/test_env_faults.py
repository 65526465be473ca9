"""FAULTS C1 to C4 and C6: what an env must not do is found at once, named, and never returned."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted_envs import Scripted, Showing, Walk, one_of_many

from muster.envs import EnvError, Episode, make_envs
from muster.errors import MusterError
from muster.seeding import derive_seed


class Broken(Scripted):
    """Does something to what it returns in step 2 of episode 1."""

    def __init__(self, change):
        super().__init__([(3, "terminated")])
        self.change = change

    def step(self, action):
        result = list(super().step(action))
        if (self.episode, self.count) == (1, 2):
            self.change(result)
        return tuple(result)


def put(index, value):
    def change(result):
        result[index] = value

    return change


def steps_until_error(change, odd=1, num_envs=3):
    """Step until the broken env has its bad step; return the envs and the error."""
    envs = make_envs(one_of_many(Walk_like, lambda: Broken(change), odd), num_envs, seed=4)
    envs.reset()
    for _ in range(4):
        envs.step([0] * num_envs)
    before = envs.state_dict()
    with pytest.raises(EnvError) as caught:
        envs.step([0] * num_envs)
    return envs, caught.value, before


def Walk_like():
    return Scripted([(3, "terminated")])


def same_state(one, two):
    for name, value in one.items():
        if isinstance(value, np.ndarray):
            assert value.tobytes() == two[name].tobytes(), name
        else:
            assert value == two[name], name


def raise_it(result):
    raise ZeroDivisionError("inside the env")


WRONG = {
    "obs NaN": (put(0, np.array([0, np.nan], np.float32)), "observation", "nan at [1]"),
    "obs Inf": (put(0, np.array([np.inf, 0], np.float32)), "observation", "inf at [0]"),
    "obs -Inf": (put(0, np.array([0, -np.inf], np.float32)), "observation", "-inf at [1]"),
    "obs too large": (put(0, np.array([1e300, 0.0])), "observation", "inf at [0]"),
    "obs shape": (put(0, np.zeros(3, np.float32)), "observation", "shape (3,) instead of (2,)"),
    "obs batch": (put(0, np.zeros((1, 2), np.float32)), "observation", "shape (1, 2)"),
    "obs number": (put(0, 1.0), "observation", "shape () instead of (2,)"),
    "obs None": (put(0, None), "observation", "is None"),
    "obs ragged": (put(0, [[1.0], [1.0, 2.0]]), "observation", "not an array"),
    "obs strings": (
        put(0, ["1.0", "2.0"]),
        "observation",
        "neither a number nor an array of numbers",
    ),
    "obs complex": (
        put(0, np.zeros(2, complex)),
        "observation",
        "neither a number nor an array of numbers",
    ),
    "obs objects": (
        put(0, np.array([None, 1])),
        "observation",
        "neither a number nor an array of numbers",
    ),
    "reward NaN": (put(1, np.nan), "reward", "is nan"),
    "reward Inf": (put(1, np.float32(np.inf)), "reward", "is inf"),
    "reward -Inf": (put(1, -np.inf), "reward", "is -inf"),
    "reward too large": (put(1, 1e39), "reward", "is 1e+39"),
    "reward huge integer": (put(1, 10**400), "reward", "is 1000"),
    "reward None": (put(1, None), "reward", "is None"),
    "reward string": (put(1, "1.0"), "reward", "is '1.0'"),
    "reward list": (put(1, [1.0]), "reward", "is [1.0]"),
    "reward array": (put(1, np.ones(1)), "reward", "is array([1.])"),
    "reward arrays": (put(1, np.ones(2)), "reward", "is array([1., 1.])"),
    "reward complex": (put(1, 1j), "reward", "is 1j"),
    "reward numpy complex": (put(1, np.complex128(1)), "reward", "is np.complex128(1+0j)"),
    "terminated None": (put(2, None), "terminated", "is None"),
    "terminated string": (put(2, "no"), "terminated", "is 'no'"),
    "terminated two": (put(2, 2), "terminated", "is 2"),
    "terminated array": (put(2, np.array([True])), "terminated", "is array([ True])"),
    "truncated None": (put(3, None), "truncated", "is None"),
    "truncated float": (put(3, 0.5), "truncated", "is 0.5"),
    "raises": (raise_it, "step", "ZeroDivisionError: inside the env"),
    "four values": (lambda result: result.pop(), "step", "not enough values to unpack"),
    "six values": (lambda result: result.append(1), "step", "too many values to unpack"),
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("change, field, text", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("odd", [0, 2])
def test_a_wrong_value_is_refused_with_its_place_and_nothing_of_the_step_stays(
    change, field, text, odd
):
    envs, error, before = steps_until_error(change, odd)
    seed = derive_seed(4, "env", odd, "episode", 1)
    assert (error.field, error.env, error.episode, error.step) == (field, odd, 1, 2)
    assert error.seed == seed
    message = str(error)
    assert f"env {odd} of 'factory' (episode 1, step 2, seed {seed})" in message
    assert text in message and "\n  try: " in message
    assert isinstance(error, MusterError) and isinstance(error, RuntimeError)
    same_state(envs.state_dict(), before)
    with pytest.raises(EnvError, match="the last step failed"):
        envs.step([0, 0, 0])


def test_values_beyond_float32_are_refused_where_warnings_are_errors_too():
    for change in (put(1, 1e39), put(0, np.array([1e300, 0.0]))):
        _, error, _ = steps_until_error(change)
        assert error.env == 1 and error.field in ("reward", "observation")


def test_very_large_but_finite_values_are_no_error():
    largest = float(np.finfo(np.float32).max)
    envs = make_envs(
        lambda: Broken(lambda r: (put(0, np.full(2, -largest, np.float32))(r), put(1, largest)(r)))
    )
    envs.reset()
    rows = [envs.step([0]) for _ in range(5)]
    assert rows[4][0].tolist() == [[-largest, -largest]] and rows[4][1].tolist() == [largest]


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_single_value_that_is_not_finite_is_found_anywhere_in_the_batch(size, value):
    rng = np.random.default_rng(0)
    space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    for _ in range(20):
        env, place = int(rng.integers(3)), int(rng.integers(size))
        bad = rng.normal(size=size).astype(np.float32)
        bad[place] = value
        usual = rng.normal(size=size).astype(np.float32) * 1e30
        factory = one_of_many(
            lambda usual=usual: Showing(space, [usual]),
            lambda usual=usual, bad=bad: Showing(space, [usual, bad]),
            env,
        )
        envs = make_envs(factory, num_envs=3)
        envs.reset()
        with pytest.raises(EnvError, match=f"at \\[{place}\\]") as caught:
            envs.step([0, 0, 0])
        assert caught.value.env == env


@pytest.mark.parametrize("size", [2, 2000])
@pytest.mark.parametrize("shape", [(3,), (1,), (), (1, 2)])
def test_a_shape_that_is_wrong_in_all_envs_alike_is_found(size, shape):
    space = spaces.Box(-1, 1, (size,), np.float32)
    values = [np.zeros(size, np.float32), np.zeros(shape, np.float32)]
    envs = make_envs(lambda: Showing(space, values), num_envs=2)
    envs.reset()
    with pytest.raises(EnvError, match=r"observation of env 0 .* has shape"):
        envs.step([0, 0])


def test_a_wrong_first_observation_is_refused_as_step_0():
    envs = make_envs(
        one_of_many(Walk_like, lambda: Showing(Scripted.observation_space, [None]), 1), 2
    )
    with pytest.raises(EnvError, match="observation of env 1") as caught:
        envs.reset()
    assert (caught.value.episode, caught.value.step) == (0, 0)
    with pytest.raises(EnvError, match="the last reset failed"):
        envs.step([0, 0])


def test_a_wrong_first_observation_after_an_end_stops_the_whole_step():
    class BadReset(Scripted):
        def show(self):
            return None if (self.episode, self.count) == (1, 0) else super().show()

    envs = make_envs(one_of_many(Walk_like, BadReset, 1), 2)
    envs.reset()
    envs.step([0, 0]), envs.step([0, 0])
    before = envs.state_dict()
    with pytest.raises(EnvError, match="observation of env 1") as caught:
        envs.step([0, 0])
    assert (caught.value.episode, caught.value.step) == (1, 0)
    same_state(envs.state_dict(), before)


def test_integers_out_of_their_space_are_refused():
    cases = [
        (spaces.Discrete(3), [0, 3], "is 3", "0 to 2"),
        (spaces.Discrete(3, start=2), [2, 1], "is 1", "2 to 4"),
        (spaces.Discrete(3), [0, 1.0], "dtype float64", "int64"),
        (spaces.Discrete(3), [0, None], "is None", "int64"),
        (
            spaces.Box(0, 5, (2,), np.int64),
            [np.zeros(2, int), np.array([0, 6])],
            "6 at [1]",
            "0 to",
        ),
        (spaces.Box(0, 255, (1,), np.uint8), [np.zeros(1, np.uint8), np.zeros(1)], "float64", ""),
        (
            spaces.Box(0, 255, (1,), np.uint8),
            [np.zeros(1, np.uint8), np.zeros(1, int)],
            "int64",
            "",
        ),
    ]
    small = spaces.Box(0, 9, (1,), np.int32)
    cases.append((small, [np.zeros(1, np.int32), np.array([2**40])], "int64", "int32"))
    for space, values, what, why in cases:
        envs = make_envs(lambda s=space, v=values: Showing(s, v))
        envs.reset()
        with pytest.raises(EnvError) as caught:
            envs.step([0])
        message = str(caught.value)
        assert what in message and why in message and caught.value.step == 1


def test_a_part_of_a_dict_that_is_wrong_or_missing_is_named():
    space = spaces.Dict({"a": spaces.Box(0, 1, (1,), np.float32), "b": spaces.Discrete(2)})
    good = {"a": np.zeros(1, np.float32), "b": 0}
    for bad, field in (
        ({"a": np.full(1, np.nan), "b": 0}, "observation['a']"),
        ({"a": np.zeros(1), "b": 7}, "observation['b']"),
        ({"a": np.zeros(1)}, "observation['b']"),
        (None, "observation['a']"),
        (np.zeros(2), "observation['a']"),
    ):
        factory = one_of_many(
            lambda: Showing(space, [good]), lambda b=bad: Showing(space, [good, b]), 1
        )
        envs = make_envs(factory, num_envs=2)
        envs.reset()
        with pytest.raises(EnvError) as caught:
            envs.step([0, 0])
        assert (caught.value.field, caught.value.env) == (field, 1)


def test_an_exception_while_making_an_env_names_it_and_closes_those_before():
    def fail():
        raise ZeroDivisionError("no such file")

    factory = one_of_many(Scripted, fail, 2)
    with pytest.raises(EnvError, match="init of env 2 of 'factory' failed: ZeroDiv") as caught:
        make_envs(factory, num_envs=4)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (caught.value.field, caught.value.env) == ("init", 2)
    assert [env.closed for env in factory.made] == [1, 1]


def test_an_exception_in_reset_names_the_env_and_its_seed_and_reset_can_be_tried_again():
    class Shy(Scripted):
        failures = 1

        def reset(self, *, seed=None, options=None):
            if self.failures:
                self.failures -= 1
                raise ConnectionError("not yet")
            return super().reset(seed=seed, options=options)

    factory = one_of_many(Scripted, Shy, 1)
    envs = make_envs(factory, num_envs=2)
    with pytest.raises(EnvError, match="reset of env 1") as caught:
        envs.reset()
    seed = derive_seed(0, "env", 1, "episode", 0)
    assert (caught.value.step, caught.value.seed) == (0, seed)
    assert isinstance(caught.value.__cause__, ConnectionError)
    envs.reset()
    assert factory.made[1].seeds == [seed]  # the same episode, not the next one


def test_a_reset_that_needs_a_smaller_seed_is_told_how():
    class Old(Scripted):
        def reset(self, *, seed=None, options=None):
            np.random.RandomState(seed)
            return super().reset(seed=seed)

    with pytest.raises(EnvError, match=r"try: use seed % 2\*\*32"):
        make_envs(Old).reset()


def test_a_reset_that_returns_no_info_is_told_what_to_return():
    class Old(Scripted):
        def reset(self, *, seed=None, options=None):
            return [*super().reset(seed=seed)[0].tolist(), 0]

    with pytest.raises(EnvError, match="try: return obs, info"):
        make_envs(Old).reset()


def test_an_exception_in_close_is_raised_after_every_env_was_closed():
    class Stuck(Scripted):
        def close(self):
            super().close()
            raise OSError("still open")

    factory = one_of_many(Scripted, Stuck, 0)
    envs = make_envs(factory, num_envs=3)
    with pytest.raises(EnvError, match="close of env 0 of 'factory' failed: OSError") as caught:
        envs.close()
    assert isinstance(caught.value.__cause__, OSError)
    assert [env.closed for env in factory.made] == [1, 1, 1]


def test_a_keyboard_interrupt_in_an_env_is_not_an_env_error():
    class Slow(Scripted):
        def step(self, action):
            raise KeyboardInterrupt

    envs = make_envs(one_of_many(Scripted, Slow, 1), num_envs=2)
    envs.reset()
    before = envs.state_dict()
    with pytest.raises(KeyboardInterrupt):
        envs.step([0, 0])
    same_state(envs.state_dict(), before)
    with pytest.raises(EnvError, match="the last step failed"):
        envs.step([0, 0])


@pytest.mark.parametrize("when", [1, 7, 10, 23])
def test_after_a_failure_the_envs_can_go_on_as_if_nothing_had_happened(when):
    class Flaky(Walk):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps == when:
                raise ConnectionError("try again")
            return super().step(action)

    flaky = make_envs(one_of_many(Walk, Flaky, 1), num_envs=3)
    steady = make_envs(one_of_many(Walk, Walk, 1), num_envs=3)
    assert (flaky.reset() == steady.reset()).all()
    failures = 0
    for number in range(40):
        actions = [number % 3, 1, 2]
        try:
            row = flaky.step(actions)
        except EnvError:
            failures += 1
            flaky.load_state_dict(flaky.state_dict())
            row = flaky.step(actions)
        other = steady.step(actions)
        assert all((a == b).all() for a, b in zip(row[:4], other[:4], strict=True))
        assert row[4]["episodes"] == other[4]["episodes"]
    assert failures == 1
    same_state(flaky.state_dict(), steady.state_dict())


def test_an_env_error_survives_a_pipe_between_processes():
    error = EnvError("what", "why", "fix", env=3, episode=4, step=5, seed=6, field="reward")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and vars(copy) == vars(error)
    assert (copy.env, copy.episode, copy.step, copy.seed, copy.field) == (3, 4, 5, 6, "reward")


def test_something_that_is_no_env_is_refused():
    with pytest.raises(EnvError, match="not an environment"):
        make_envs(lambda: "CartPole-v1")


def test_an_endless_episode_is_no_error():
    envs = make_envs(lambda: Scripted([(10**9, "terminated")]))
    envs.reset()
    for _ in range(1000):
        assert envs.step([0])[4]["episodes"] == []
    assert envs.state_dict()["lengths"].tolist() == [1000]


def test_both_flags_and_the_return_are_reported_for_the_step_that_ended():
    envs = make_envs(lambda: gym.wrappers.TimeLimit(Scripted([(3, "terminated")]), 3))
    envs.reset()
    rows = [envs.step([0]) for _ in range(3)]
    assert rows[2][2].all() and rows[2][3].all()
    assert rows[2][4]["episodes"] == [Episode(0, 0, 3.0, 3)]
