"""Random histories of vector environments, and a slow model of what a replay buffer makes of them.

Every observation is one of a kind, so a test sees at once where a number came from.
"""

import hashlib
from itertools import count

import numpy as np
from gymnasium import spaces

from muster.data import ReplayBuffer

VECTOR = spaces.Box(-np.inf, np.inf, (3,))
ACTION = spaces.Discrete(5)


class World:
    """Environments whose observations count up; the caller decides when episodes end."""

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self._fresh = count(1)
        self.obs = self._new()

    def _new(self):
        numbers = np.array([next(self._fresh) for _ in range(self.num_envs)], np.float32)
        return np.stack([numbers, -numbers, numbers / 8], axis=1)

    def step(self, terminated, truncated):
        """Return the arguments of one `add`."""
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        obs, next_obs = self.obs, self._new()
        action = obs[:, 0].astype(np.int64) % 5
        reward = np.cos(obs[:, 0]).astype(np.float32)
        ended = (terminated | truncated)[:, None]
        self.obs = np.where(ended, self._new(), next_obs)
        return obs, action, reward, next_obs, terminated, truncated

    def restart(self):
        self.obs = self._new()


class Model:
    """What is stored, as one list of steps: a buffer that forgets nothing and computes slowly."""

    def __init__(self, num_envs, n_step=1, gamma=0.9):
        self.num_envs, self.n_step, self.gamma = num_envs, n_step, gamma
        self.steps = []

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        self.steps.append((obs, action, reward, next_obs, terminated.copy(), truncated.copy()))

    def cut(self):
        if self.steps:
            terminated, truncated = self.steps[-1][4:]
            truncated |= ~terminated

    def transition(self, number):
        """Return obs, action, reward, next_obs, discount of the transition with this id."""
        t, env = divmod(int(number), self.num_envs)
        first = self.steps[t]
        total, k = 0.0, 0
        while True:
            _, _, reward, next_obs, terminated, truncated = self.steps[t + k]
            total += self.gamma**k * float(reward[env])
            k += 1
            if terminated[env]:
                return first[0][env], first[1][env], total, next_obs[env], 0.0
            if truncated[env] or k == self.n_step or t + k == len(self.steps):
                return first[0][env], first[1][env], total, next_obs[env], self.gamma**k

    def check(self, batch):
        """Assert that every transition of the batch [count, B] is as it should be."""
        for row in np.ndindex(batch.index.shape):
            obs, action, reward, next_obs, discount = self.transition(batch.index[row])
            np.testing.assert_array_equal(batch.obs[row], obs)
            assert batch.action[row] == action
            np.testing.assert_allclose(batch.reward[row], reward, rtol=1e-6, atol=1e-6)
            np.testing.assert_array_equal(batch.next_obs[row], next_obs)
            np.testing.assert_allclose(batch.discount[row], discount, rtol=1e-6)


def vector_buffer(capacity, num_envs, **options):
    return ReplayBuffer(capacity, VECTOR, ACTION, num_envs=num_envs, **options)


def run(buffer, world, steps, rng, end_probability=0.2):
    """Add random steps."""
    for _ in range(steps):
        ends = rng.random((2, world.num_envs)) < end_probability
        buffer.add(*world.step(*ends))


def assert_same(one, other):
    """Assert that two batches, or None, are the same bits."""
    assert (one is None) == (other is None)
    if one is not None:
        for name in one.__slots__:
            mine, theirs = getattr(one, name), getattr(other, name)
            if isinstance(mine, dict):
                assert mine == theirs == {}, name
                continue
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            assert mine.tobytes() == theirs.tobytes(), name


def assert_near_chi_square(counts, expected, regular=False):
    """Assert that counts differ from expected ones as much as chance makes them.

    Args:
        counts: How often each was seen.
        expected: How often each should be, the same sum.
        regular: Whether they may be nearer than chance, as stratified draws are.
    """
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)
    assert regular or statistic > freedom - 4 * np.sqrt(2 * freedom)


def digest_of(batches):
    digest = hashlib.sha256()
    for batch in batches:
        for name in batch.__slots__:
            value = getattr(batch, name)
            for array in value.values() if isinstance(value, dict) else [value]:
                digest.update(array.tobytes())
    return digest.hexdigest()
