"""The faster action space answers as Gymnasium's does, and environments get it."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from muster.envs import make_envs
from muster.envs.quick_spaces import QuickDiscrete, quicken

ODD = [
    *range(-3, 9),
    2**70,
    -(2**70),
    True,
    False,
    1.0,
    float("nan"),
    None,
    "1",
    [1],
    np.int8(1),
    np.int64(-1),
    np.uint64(2**63),
    np.float32(1),
    np.array(1),
    np.array([1]),
    np.bool_(True),
]


@pytest.mark.parametrize(
    "space", [Discrete(1), Discrete(2), Discrete(5, start=-2), Discrete(3, start=4)]
)
def test_it_holds_exactly_what_discrete_holds(space):
    quick = QuickDiscrete(space)
    for value in ODD:
        assert quick.contains(value) == space.contains(value), repr(value)
    assert quick == space and space == quick
    assert quick.dtype == space.dtype and repr(quick) == repr(space)


def test_it_draws_what_discrete_draws():
    space = Discrete(5, start=2, seed=3)
    quick = QuickDiscrete(Discrete(5, start=2))
    quick.seed(3)
    assert [space.sample() for _ in range(20)] == [quick.sample() for _ in range(20)]


def test_an_environment_with_a_plain_discrete_gets_it_and_others_keep_theirs():
    cart = gym.make("CartPole-v1")
    quicken(cart)
    assert type(cart.unwrapped.action_space) is QuickDiscrete
    assert cart.action_space == Discrete(2)
    pendulum = gym.make("Pendulum-v1")
    space = pendulum.unwrapped.action_space
    quicken(pendulum)
    assert pendulum.unwrapped.action_space is space


def test_an_environment_of_a_number_is_the_same_whoever_makes_it():
    actions = np.random.default_rng(0).integers(0, 2, (60, 4))
    with (
        make_envs("CartPole-v1", 4, seed=7) as whole,
        make_envs("CartPole-v1", 2, seed=7, first_env=2) as part,
    ):
        assert whole.reset()[2:].tobytes() == part.reset().tobytes()
        for row in actions:
            obs, reward, *_ = whole.step(row)
            some, part_reward, *_ = part.step(row[2:])
            assert obs[2:].tobytes() == some.tobytes()
            assert reward[2:].tobytes() == part_reward.tobytes()
        assert part.episode_seed(0, 3) == whole.episode_seed(2, 3)
