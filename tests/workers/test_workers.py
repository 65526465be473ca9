"""Collector, Learner and Evaluator with real environments and small policies."""

import gymnasium as gym
import numpy as np
import pytest

from muster.envs import make_envs
from muster.errors import OptionError, TaskError
from muster.workers import Collector, Evaluator, Learner, evaluate_policy


class Always:
    """A policy with one answer."""

    def __init__(self, action):
        self.action = action
        self.epsilons = []

    def act(self, obs):
        return np.full(len(obs), self.action)

    def explore(self, obs, epsilon):
        self.epsilons.append(epsilon)
        return self.act(obs)


class Countdown(gym.Env):
    """Episodes whose length depends on the seed; a reward of 1 for each step."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 30))
        return np.array([self.left], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}


def test_a_collector_returns_what_it_saw_with_the_true_next_observations():
    envs = make_envs(Countdown, 3, seed=0)
    policy = Always(0)
    collector = Collector(policy, envs, steps=5)
    first = collector.collect(policy_kwargs={"eps": 0.25})
    second = collector.collect()
    assert first.obs.shape == (5, 3, 1) and first.reward.shape == (5, 3)
    assert collector.envstep == 30
    assert policy.epsilons == [0.25] * 5 + [0.0] * 5
    for data in (first, second):
        assert np.array_equal(data.next_obs, data.obs - 1), "also where an episode ended"
    ended = np.concatenate([first.terminated, second.terminated])
    assert len(collector.take_episodes()) == ended.sum() > 0
    assert collector.take_episodes() == []


def test_a_collector_that_was_saved_goes_on_with_the_same_steps():
    def make():
        return Collector(Always(1), make_envs("CartPole-v1", 2, seed=5), steps=7)

    one = make()
    one.collect()
    state = one.state_dict()
    other = make()
    other.load_state_dict(state)
    expected, got = one.collect(), other.collect()
    assert np.array_equal(expected.obs, got.obs) and np.array_equal(expected.reward, got.reward)
    assert other.envstep == one.envstep


@pytest.mark.parametrize("episodes", [1, 7, 40])
def test_every_episode_of_an_evaluation_counts_however_long_it_is(episodes):
    found = evaluate_policy(Always(0), Countdown, episodes, seed=1)
    assert found.episodes == episodes
    assert found.mean == pytest.approx(np.mean(found.returns))
    assert found.std == pytest.approx(np.std(found.returns))
    again = evaluate_policy(Always(0), Countdown, episodes, seed=1)
    assert again == found
    if episodes == 40:
        assert 12 < found.mean < 18, "no preference for short ones: lengths are 1 to 29"


def test_an_evaluator_says_when_it_is_due_and_when_it_is_good_enough():
    saved = []
    evaluator = Evaluator(Always(0), Countdown, every=10, episodes=3, stop_at=1.0)
    assert evaluator.should_eval(0)
    stop, reward = evaluator.eval(lambda: saved.append(1), 0, 0)
    assert stop and reward == evaluator.last.mean and saved == [1]
    assert not evaluator.should_eval(9) and evaluator.should_eval(10)
    never = Evaluator(Always(0), Countdown, episodes=3, stop_at=1000.0)
    assert never.eval(lambda: saved.append(2), 0, 0)[0] is False and saved == [1]


def test_a_learner_without_a_way_to_save_says_so():
    with pytest.raises(TaskError, match="this learner does not know how to save"):
        Learner(policy=None).save_checkpoint()


def test_nonsense_is_refused():
    with pytest.raises(OptionError, match="episodes=0"):
        evaluate_policy(Always(0), Countdown, 0)
    with pytest.raises(OptionError, match="steps=0"):
        Collector(Always(0), make_envs(Countdown), steps=0)
