"""SAC as a run: it learns, repeats itself to the bit, and on several nodes keeps its ratio."""

import gymnasium as gym
import numpy as np
import pytest

import muster

TINY = {
    "hidden": (16, 16),
    "batch_size": 16,
    "learning_starts": 64,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "quiet": True,
}


class Reach(gym.Env):
    """Say a number that is seen: twenty steps, each costs the squared distance."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self._see(), {}

    def step(self, action):
        cost = float((action[0] - self.seen) ** 2)
        self.left -= 1
        return self._see(), -cost, False, self.left == 0, {}

    def _see(self):
        self.seen = self.np_random.uniform(-1, 1)
        return np.array([self.seen], np.float32)


class Seen(gym.Env):
    """A picture and two numbers; what is done must be an action."""

    observation_space = gym.spaces.Dict(
        {
            "picture": gym.spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "speed": gym.spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    action_space = gym.spaces.Box(-1, 1, (2, 2), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.left -= 1
        return self.observation_space.sample(), 0.0, False, self.left == 0, {}


gym.register("Reach-v0", Reach)
gym.register("Seen-v0", Seen)


@pytest.mark.timeout(600)
def test_it_learns_to_say_what_it_sees(tmp_path):
    result = muster.train(
        "sac",
        "Reach-v0",
        run_dir=str(tmp_path / "run"),
        hidden=(32, 32),
        batch_size=64,
        lr_actor=3e-3,
        lr_critic=3e-3,
        lr_temperature=3e-3,
        gamma=0.5,
        env_steps=4_000,
        learning_starts=200,
        eval_every=500,
        eval_episodes=20,
        stop_at=-0.5,  # at random: about -33
        quiet=True,
    )
    assert result.stopped_by == "target"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_it_swings_a_pendulum_up(tmp_path, seed):
    result = muster.train(
        "sac", "Pendulum-v1", run_dir=str(tmp_path / "run"), seed=seed, quiet=True
    )
    assert result.eval_return_mean >= -200 and result.env_steps <= 20_000


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"updates_per_step": 0.3, "num_envs": 3},
        pytest.param(
            {"critics": 3, "dropout": 0.1, "layer_norm": True, "updates_per_step": 2},
            marks=pytest.mark.slow,
        ),
        {"quantiles": 5, "prioritized": True, "n_step": 3},
        {"batch_norm": True, "policy_every": 3},
    ],
    ids=["plain", "ratio", "droq", "tqc", "crossq"],
)
def test_it_repeats_itself_to_the_bit_also_across_a_stop(tmp_path, options):
    options = {**TINY, **options}
    once = muster.train("sac", "Pendulum-v1", run_dir=str(tmp_path / "a"), env_steps=240, **options)
    again = muster.train(
        "sac", "Pendulum-v1", run_dir=str(tmp_path / "b"), env_steps=120, **options
    )
    assert again.policy_sha256 != once.policy_sha256
    resumed = muster.resume(tmp_path / "b", env_steps=240, quiet=True)
    assert resumed.policy_sha256 == once.policy_sha256
    assert (resumed.train_iter, resumed.env_steps) == (once.train_iter, once.env_steps)


@pytest.mark.parametrize("ratio", [0.25, 1.5])
def test_as_many_updates_are_made_as_were_asked_for(tmp_path, ratio):
    options = {**TINY, "updates_per_step": ratio, "env_steps": 400, "num_envs": 2}
    result = muster.train("sac", "Pendulum-v1", run_dir=str(tmp_path / "run"), **options)
    assert result.train_iter == pytest.approx(ratio * (400 - 64), abs=2 * ratio + 1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_on_nodes_samples_for_each_insert_are_as_many_as_were_asked_for(tmp_path, ratio):
    options = {**TINY, "updates_per_step": ratio, "env_steps": 4_000}
    result = muster.train("sac", "Pendulum-v1", run_dir=str(tmp_path / "run"), workers=3, **options)
    assert result.workers == 3
    assert result.train_iter / (result.env_steps - 64) == pytest.approx(ratio, rel=0.02)


def test_images_and_dicts_are_learnt_from(tmp_path):
    options = {**TINY, "buffer_size": 500, "env_steps": 80}
    result = muster.train("sac", "Seen-v0", run_dir=str(tmp_path / "run"), **options)
    assert result.train_iter > 0


def test_discrete_actions_are_refused_in_three_lines(tmp_path):
    with pytest.raises(muster.OptionError, match="SAC needs Box actions"):
        muster.train("sac", "CartPole-v1", run_dir=str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
