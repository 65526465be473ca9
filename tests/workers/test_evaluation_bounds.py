"""An evaluation ends: after so many steps of an episode, and when its time is up."""

import json
import time

import numpy as np
import pytest
from endless_env import Lasting

import muster
from muster.cli.main import main
from muster.envs import check_env
from muster.errors import MusterWarning
from muster.workers import EvaluationUnfinished, evaluate_policy


class Still:
    def act(self, obs):
        return np.zeros(len(obs), np.int64)


@pytest.fixture(autouse=True)
def none_made():
    Lasting.made = 0


def test_an_episode_that_does_not_end_is_cut_and_that_is_said():
    with pytest.warns(MusterWarning, match="had not ended after 50 steps: 20 count"):
        found = evaluate_policy(Still(), Lasting, 100, max_steps=50)
    assert found.returns == (50.0,) * 20, "a cut env plays no other episode"


def test_the_mean_is_of_the_episodes_that_every_environment_has_ended():
    with pytest.warns(MusterWarning, match="had not ended"):
        found = evaluate_policy(Still(), Lasting, 8, max_steps=40, lengths=(10, 0))
    # Four of eight envs are cut in their first episode; the others' second one does not count.
    assert sorted(found.returns) == [10.0] * 4 + [40.0] * 4


def test_time_that_is_up_leaves_whole_rounds():
    class Waits(Still):
        calls = 0

        def act(self, obs):
            Waits.calls += 1
            if Waits.calls == 25:  # in the third round of 20 envs
                time.sleep(0.5)
            return super().act(obs)

    with pytest.warns(MusterWarning, match="came to 40 of 60 episodes"):
        found = evaluate_policy(Waits(), Lasting, 60, seconds=0.4, lengths=(10,))
    assert found.returns == (10.0,) * 40


def test_no_episode_in_time_is_no_evaluation():
    with pytest.raises(EvaluationUnfinished, match="finished no episode"):
        evaluate_policy(Still(), Lasting, 4, seconds=0.05)


OPTIONS = {
    "ppo": {"num_envs": 4, "rollout": 8, "minibatches": 2, "epochs": 1, "hidden": (8,)},
    "dqn": {"train_every": 16, "learning_starts": 32, "updates_per_train": 1, "hidden": (8,)},
}


@pytest.mark.filterwarnings("ignore::muster.errors.MusterWarning")
@pytest.mark.parametrize("algo", OPTIONS)
@pytest.mark.parametrize("every", [0, 64])
def test_an_environment_that_never_ends_does_not_keep_a_run_from_ending(tmp_path, algo, every):
    result = muster.train(
        algo, "endless_env:Endless-v0", run_dir=str(tmp_path / "run"), env_steps=128, workers=0,
        eval_every=every, eval_episodes=2, eval_max_steps=30, quiet=True, **OPTIONS[algo],
    )  # fmt: skip
    assert (result.env_steps, result.eval_return_mean, result.eval_episodes) == (128, 30.0, 2)


@pytest.mark.filterwarnings("ignore::muster.errors.MusterWarning")
@pytest.mark.parametrize("algo", OPTIONS)
def test_seconds_are_those_of_training_and_evaluations(tmp_path, algo):
    started = time.monotonic()
    result = muster.train(
        algo, "endless_env:SlowEndless-v0", run_dir=str(tmp_path / "run"), seconds=3, workers=0,
        eval_every=0, eval_episodes=20, quiet=True, **OPTIONS[algo],
    )  # fmt: skip
    # A step of 20 envs takes 40 ms, so the cut at 100,000 steps is hours away.
    assert result.stopped_by == "time" and result.eval_return_mean is None
    assert result.seconds < time.monotonic() - started < 60
    assert json.loads((tmp_path / "run" / "result.json").read_text())["eval_episodes"] == 0


@pytest.mark.timeout(600)
def test_an_evaluator_on_a_node_of_its_own_is_bounded_too(tmp_path):
    result = muster.train(
        "dqn", "endless_env:Endless-v0", run_dir=str(tmp_path / "run"), env_steps=256, workers=3,
        eval_every=0, eval_episodes=2, eval_max_steps=30, quiet=True, **OPTIONS["dqn"],
    )  # fmt: skip
    assert (result.eval_return_mean, result.eval_episodes) == (30.0, 2)


def test_doctor_finds_an_environment_that_never_ends(capsys):
    assert "no episode ended" in check_env("endless_env:Endless-v0").problems[-1]
    assert check_env("CartPole-v1").problems == []
    assert main(["doctor", "endless_env:Endless-v0"]) == 1
    assert "problem: no episode ended in" in capsys.readouterr().out
