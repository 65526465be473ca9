"""Episodes that cannot be restored on resume: no n-step return goes across the cut."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import muster.recipes.dqn as recipe
from muster.errors import MusterWarning
from muster.recipes.train import train

SMALL = {
    "num_envs": 2,
    "n_step": 3,
    "hidden": (16, 16),
    "train_every": 32,
    "updates_per_train": 2,
    "learning_starts": 64,
    "buffer_size": 500,
    "batch_size": 16,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 0,
    "quiet": True,
}


class Forgetful(CartPoleEnv):
    """CartPole that a seed does not decide, so that no episode can be repeated."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=int(np.random.randint(2**31)))


gym.register("Forgetful-v0", Forgetful, max_episode_steps=500)


@pytest.fixture
def buffers(monkeypatch):
    """The replay buffers that the recipe makes."""
    made = []

    class Remembered(recipe.ReplayBuffer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(recipe, "ReplayBuffer", Remembered)
    return made


def transitions_across(buffer, row):
    """How many of the n-step transitions that begin before `row` look at what comes after it."""
    ids = np.arange(len(buffer)) + buffer.inserted - len(buffer)
    read = buffer._read(ids, np.ones(len(ids), np.float32))
    before = ids[(ids >= (row - 2) * 2) & (ids < row * 2)] - ids[0]
    steps = np.rint(read.reward[before]).astype(int)  # CartPole pays 1 for each
    return int((ids[before] // 2 + steps > row).sum())


def stop_and_resume(tmp_path, env, **options):
    options |= SMALL | {"run_dir": str(tmp_path / "run")}
    train("dqn", env, env_steps=128, **options)
    with pytest.warns(MusterWarning):
        train("dqn", env, env_steps=192, resume=True, **options)


def test_episodes_that_envpool_restarts_are_cut_in_replay(tmp_path, buffers):
    pytest.importorskip("envpool")
    stop_and_resume(tmp_path, "CartPole-v1", backend="envpool")
    assert transitions_across(buffers[-1], 64) == 0


def test_episodes_of_an_env_that_cannot_be_repeated_are_cut_in_replay(tmp_path, buffers):
    stop_and_resume(tmp_path, "Forgetful-v0")
    assert transitions_across(buffers[-1], 64) == 0


def test_episodes_that_go_on_are_not_cut(tmp_path, buffers):
    for steps, resume in ((128, False), (192, True)):
        run_dir = str(tmp_path / "run")
        train("dqn", "CartPole-v1", run_dir=run_dir, env_steps=steps, resume=resume, **SMALL)
    assert transitions_across(buffers[-1], 64) == 4, "two steps of two envs"
