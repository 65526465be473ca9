"""Collector, Learner and Evaluator with real environments and small policies."""

import tracemalloc

import gymnasium as gym
import numpy as np
import pytest

from muster.data import PRIORITY, Column, ReplayBuffer
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


class Remembering(Always):
    """A policy that is told whose episode begins."""

    remembers = True

    def __init__(self):
        super().__init__(0)
        self.firsts = []
        self.completed = []

    def explore(self, obs, epsilon, first):
        self.firsts.append(first)
        return super().explore(obs, epsilon)

    def complete(self, block):
        self.completed.append(block)


def test_a_policy_that_remembers_is_told_of_new_episodes_also_after_a_resume():
    policy, collector = _remembering()
    blocks = [collector.collect() for _ in range(4)]
    ended = np.concatenate([block.terminated for block in blocks])
    expected = np.concatenate([np.ones((1, 3), np.bool_), ended])
    np.testing.assert_array_equal(policy.firsts, expected[:-1])
    for steps in range(1, 5):
        _, one = _remembering()
        for _ in range(steps):
            one.collect()
        again, other = _remembering()
        other.load_state_dict(one.state_dict())
        other.collect()
        np.testing.assert_array_equal(again.firsts[0], expected[5 * steps])


def test_a_policy_is_told_when_a_block_is_complete():
    policy, collector = _remembering()
    blocks = [collector.collect() for _ in range(3)]
    assert [id(block) for block in policy.completed] == [id(block) for block in blocks]


def _remembering():
    policy = Remembering()
    return policy, Collector(policy, make_envs(Countdown, 3, seed=0), steps=5)


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


class Large(gym.Env):
    """Observations that are large beside everything else; an episode is cut after five steps."""

    observation_space = gym.spaces.Box(0, 255, (100, 1000), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros((100, 1000), np.uint8), {}

    def step(self, action):
        self.steps += 1
        obs = np.full((100, 1000), self.steps, np.uint8)
        return obs, 1.0, False, self.steps == 5, {}


def test_a_step_is_copied_once_into_the_block_and_once_into_replay():
    """So nothing but the block is made on the way: not a list of steps, nor a second block."""
    envs = make_envs(Large, 2)
    space = envs.single_observation_space, envs.single_action_space
    collector, buffer = Collector(Always(0), envs, steps=16), ReplayBuffer(64, *space, num_envs=2)
    for _ in range(5):  # replay has all its memory
        buffer.push(collector.collect())
    tracemalloc.start()
    block = collector.collect()
    _, collecting = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    buffer.push(block)
    _, storing = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    row = 2 * 100 * 1000
    # 17 rows, the final observations of six ends, and a few rows inside the environments.
    assert block.seen.nbytes == 17 * row and block.finals.nbytes == 3 * row
    assert collecting < (17 + 2 * 3 + 6) * row
    assert storing - before < row


class Writer(Always):
    """A policy that says besides what it thinks of each step."""

    schema = (PRIORITY, Column("thought", np.dtype(np.float32), (2,)))

    def write(self, rows):
        rows["priority"][:] = 3.0
        rows["thought"][:] = [1.0, 2.0]


def test_a_policy_with_a_schema_fills_its_columns_and_replay_gives_them_back():
    envs = make_envs(Countdown, 3, seed=0)
    space = envs.single_observation_space, envs.single_action_space
    collector = Collector(Writer(0), envs, steps=4)
    buffer = ReplayBuffer(
        60, *space, num_envs=3, columns=Writer.schema, prioritized=True, alpha=1.0
    )
    buffer.push(collector.collect())
    assert buffer.mass == pytest.approx(36.0, rel=1e-5)
    assert buffer.sample(5).columns["thought"].tolist() == [[1.0, 2.0]] * 5
