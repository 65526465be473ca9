"""rho, eta and what limits, from made-up numbers; and that real ones can be had."""

import time

import gymnasium as gym
import numpy as np
import pytest

from muster.envs import make_envs
from muster.nets.flops import Product
from muster.workers.limits import Calibration, Limits, Split

HAND = Limits(
    env_step_s=10e-6, flops=1000, gemm_flops_per_s=1e9, row_bytes=50, copy_bytes_per_s=1e8
)


class Sleepy(gym.Env):
    """A step takes two milliseconds, in which no core is used."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.002)
        return np.zeros(1, np.float32), 0.0, False, False, {}


NETWORK = (Product(1, 4, 8), Product(16, 9, 8, times=2))


def calibration(env="CartPole-v1", products=NETWORK):
    return Calibration(
        lambda: make_envs(env, 2), products, rows=64, row_bytes=50, block_bytes=50 * 256
    )


def test_eta_is_the_part_of_the_bound_that_was_reached():
    # A step takes 10 us in the env, 1 us forward, 3 * 4 us to learn, 0.5 us to be written.
    assert HAND.bound_steps_per_s(cores=2, epochs=4) == pytest.approx(2 / 23.5e-6)
    assert HAND.eta(40_000, cores=2, epochs=4) == pytest.approx(40_000 * 23.5e-6 / 2)
    assert HAND.eta(40_000, cores=1, epochs=1) == pytest.approx(40_000 * 14.5e-6)


def test_rho_is_the_part_of_the_bare_environments_speed():
    assert HAND.bare_steps_per_s(cores=2) == pytest.approx(200_000)
    assert HAND.rho(40_000, cores=2) == pytest.approx(0.2)
    assert HAND.rho(40_000, cores=1) == pytest.approx(0.4)


def test_a_network_without_products_costs_nothing():
    limits = Limits(10e-6, 0, 0.0, 50, 1e8)
    assert limits.bound_steps_per_s(cores=1, epochs=4) == pytest.approx(1 / 10.5e-6)


@pytest.mark.parametrize(
    ("split", "limited_by"),
    [
        (Split.of(10, env=5, act=1, learn=2, exchange=1), "env"),
        (Split.of(10, env=1, act=5, learn=2, exchange=1), "act"),
        (Split.of(10, env=1, act=1, learn=5, exchange=2), "learn"),
        (Split.of(10, env=1, act=2, learn=1, exchange=5), "exchange"),
        (Split.of(10, env=1, act=2, learn=1, exchange=1), "rest"),
    ],
)
def test_what_takes_longest_limits(split, limited_by):
    assert split.limited_by == limited_by
    assert sum(split.shares.values()) == pytest.approx(1)
    assert split.shares[limited_by] == pytest.approx(0.5)


def test_parts_that_overlap_leave_no_rest_and_shares_are_still_of_one():
    split = Split.of(10, env=8, act=4, learn=4, exchange=0)
    assert split.rest == 0
    assert split.shares["env"] == pytest.approx(0.5)


def test_a_calibration_finds_every_limit_even_if_it_has_no_time():
    measuring = calibration()
    measuring.spend(0)
    found = measuring.limits()
    measuring.close()
    assert found.flops == 2 * (4 * 8 + 2 * 16 * 9 * 8)
    assert found.row_bytes == 50
    assert min(found.env_step_s, found.gemm_flops_per_s, found.copy_bytes_per_s) > 0


def test_a_calibration_may_be_cut_into_pieces():
    measuring = calibration()
    measuring.spend(0)
    first = measuring.limits()
    measuring.spend(0.01)
    second = measuring.limits()
    measuring.close()
    assert second.gemm_flops_per_s >= first.gemm_flops_per_s
    assert second.copy_bytes_per_s >= first.copy_bytes_per_s


def test_a_network_without_products_can_be_calibrated():
    measuring = calibration(products=())
    measuring.spend(0)
    assert measuring.limits().flops == 0
    measuring.close()


def test_an_environment_that_waits_is_as_slow_as_it_is():
    measuring = calibration(Sleepy)
    measuring.spend(0.02)
    assert measuring.limits().env_step_s > 0.0015
    measuring.close()


def test_random_actions_are_not_drawn_from_a_space_that_others_use():
    Sleepy.action_space.seed(7)
    wanted = Sleepy.action_space.sample()
    Sleepy.action_space.seed(7)
    calibration(Sleepy).close()
    assert Sleepy.action_space.sample() == wanted
