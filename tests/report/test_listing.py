"""Which runs there are, which are the best, and what two differ in."""

import pytest
from made_runs import make_run

import muster
from muster.report.listing import differences
from muster.report.runs import read_run


@pytest.fixture
def folder(tmp_path):
    make_run(tmp_path / "a", algo="ppo", returns=[10.0, 400.0, 90.0], started="2026-01-01T00:00:01")
    make_run(tmp_path / "b", algo="dqn", returns=[500.0], started="2026-01-01T00:00:02")
    make_run(tmp_path / "c", algo="ppo", env="Acrobot-v1", returns=[], status="failed")
    return tmp_path


def names(found):
    return [run.path.name for run in found]


def test_runs_are_chosen_by_algorithm_and_environment(folder):
    assert names(muster.runs(folder)) == ["c", "a", "b"]
    assert names(muster.runs(folder, algo="ppo")) == ["c", "a"]
    assert names(muster.runs(folder, env="CartPole-v1")) == ["a", "b"]
    assert names(muster.runs(folder, algo="dqn", env="Acrobot-v1")) == []


def test_the_best_runs_are_those_with_the_highest_returns_and_the_best_is_last(folder):
    assert names(muster.runs(folder, best=2)) == ["a", "b"]
    assert names(muster.runs(folder, best=9)) == ["c", "a", "b"]  # no return is the least
    with pytest.raises(muster.OptionError, match="best=0 is not possible"):
        muster.runs(folder, best=0)


def test_an_algorithm_or_environment_without_runs_gets_the_nearest_that_has_some(folder):
    with pytest.raises(muster.OptionError, match=r"(?s)algo='pppo'.*of dqn, ppo.*try: algo='ppo'"):
        muster.runs(folder, algo="pppo")
    with pytest.raises(muster.OptionError, match="env='CartPole-v1'"):
        muster.runs(folder, env="Cartpole-v1")


def test_settings_that_differ_are_shown_with_the_values_of_each(tmp_path):
    one = read_run(make_run(tmp_path / "a", seed=1, lr=0.1, clip=0.2))
    two = read_run(make_run(tmp_path / "b", seed=2, lr=0.1, eps=True))
    assert differences(one, two) == {"seed": [1, 2], "clip": [0.2, "-"], "eps": ["-", True]}
    assert differences(one, one) == {}
