"""check_env: what the doctor finds."""

import gymnasium as gym
import numpy as np
import pytest
from scripted_envs import Scripted, Showing, Walk

from muster.envs import CheckReport, UnknownEnvError, check_env


def test_a_good_env_has_no_problems():
    report = check_env("CartPole-v1")
    assert report.problems == [] and report.ok
    assert (report.env_id, report.backend) == ("CartPole-v1", "gymnasium")
    assert report.reproducible is True and report.restorable is True
    assert report.steps_per_s > 0
    assert report.action_space == "Discrete(2)" and report.observation_space.startswith("Box(")


def test_what_gymnasium_warns_of_is_kept_without_its_colours():
    report = check_env("Pendulum-v1")
    assert any("symmetric and normalized" in warning for warning in report.gymnasium_warnings)
    assert not any("\x1b" in w or w.startswith("WARN") for w in report.gymnasium_warnings)
    assert report.ok


def test_envpool_is_checked_too_and_is_not_restorable():
    report = check_env("CartPole-v1", backend="envpool")
    assert report.ok and report.backend == "envpool"
    assert report.reproducible is True and report.restorable is False
    assert report.steps_per_s > 0


def test_a_factory_and_its_arguments_are_taken():
    report = check_env(Walk, length=3)
    assert report.env_id == "Walk" and report.reproducible and report.restorable


def test_an_env_that_ignores_its_seed_is_not_reproducible():
    rng = np.random.default_rng(0)

    class Wild(Scripted):
        def show(self):
            return rng.random(2, np.float32)

    report = check_env(Wild)
    assert report.reproducible is False
    assert any("np_random" in problem for problem in report.problems)
    assert any("gymnasium's checker" in problem for problem in report.problems)


def test_an_env_whose_steps_alone_ignore_the_seed_is_not_reproducible():
    rng = np.random.default_rng(0)

    class Restless(Scripted):
        def reward(self):
            return rng.random()

    report = check_env(Restless)
    assert report.reproducible is False and not report.ok


def test_an_env_that_fails_outside_of_a_vector_env_is_a_problem_and_no_error():
    class Demanding(Walk):
        def reset(self, *, seed=None, options=None):
            if seed is None:
                raise ValueError("I want a seed")
            return super().reset(seed=seed)

    report = check_env(Demanding)
    assert "ValueError: I want a seed" in report.problems
    assert report.restorable is True and report.steps_per_s is None


def test_an_env_that_depends_on_its_past_is_not_restorable():
    class Aging(Walk):
        """Shows how often it was reset: the same for two new ones, but not after a replay."""

        resets = 0

        def reset(self, *, seed=None, options=None):
            self.resets += 1
            return super().reset(seed=seed)[0] + self.resets, {}

    report = check_env(Aging, length=7)
    assert report.reproducible is True and report.restorable is False
    assert any("cannot be restored" in problem for problem in report.problems)


def test_an_env_that_goes_on_differently_after_a_restore_is_not_restorable():
    class Late(Walk):
        """Shows from step 25 on which object it is."""

        made = 0

        def __init__(self):
            super().__init__(length=100)
            Late.made += 1
            self.mine = Late.made

        def step(self, action):
            obs, *rest = super().step(action)
            return obs + self.mine * (self.count > 25), *rest

    report = check_env(Late)
    assert report.reproducible is True and report.restorable is False
    assert any("cannot be restored" in problem for problem in report.problems)


def test_an_env_that_fails_has_the_failure_among_its_problems():
    class Failing(Scripted):
        def step(self, action):
            raise ZeroDivisionError("in step")

    report = check_env(Failing)
    assert any("step of env 0" in problem and "in step" in problem for problem in report.problems)
    assert report.steps_per_s is None and not report.ok


def test_an_env_that_cannot_be_made_has_one_problem():
    def broken():
        raise ZeroDivisionError("in init")

    report = check_env(broken)
    assert len(report.problems) == 1 and "in init" in report.problems[0]
    assert report.reproducible is None
    report = check_env(lambda: Showing(gym.spaces.Text(3), ["abc"]))
    assert len(report.problems) == 1 and "not supported" in report.problems[0]


def test_an_env_that_cannot_be_closed_is_reported():
    class Stuck(Walk):
        def close(self):
            raise OSError("still open")

    report = check_env(Stuck)
    assert isinstance(report, CheckReport) and any("still open" in p for p in report.problems)


def test_an_unknown_id_is_an_error():
    with pytest.raises(UnknownEnvError, match="CartPole-v1"):
        check_env("CartPole-v7")
