"""A batch under the names of a plain replay buffer."""

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from muster.actors import SampledBatch
from muster.actors.sampled_batch import ShardOfSamples
from muster.data import VERSION, ReplayBuffer, StepBlock
from muster.data.steps import FragmentSource

STEPS = 20
TERMINATED, TRUNCATED = 6, 13


def batch_of(gamma):
    """Return all transitions of two steps each, in order; observation and reward count steps."""
    number = np.arange(STEPS, dtype=np.float32)[:, None]
    spaces_of_env = spaces.Box(-1e9, 1e9, (1,)), spaces.Discrete(2)
    make = partial(
        ReplayBuffer, 100, *spaces_of_env, num_envs=1, n_step=2, gamma=gamma, columns=(VERSION,)
    )
    shard = ShardOfSamples(make, generation=0)
    steps = StepBlock.of(
        obs=number[..., None],
        action=np.zeros((STEPS, 1), np.int64),
        reward=number,
        next_obs=number[..., None] + 1,
        terminated=number == TERMINATED,
        truncated=number == TRUNCATED,
    )
    shard.store(steps, 0, FragmentSource("a worker", 1))
    return SampledBatch.of(shard.draw((np.arange(STEPS) + 0.5) / STEPS).batch)


@pytest.mark.parametrize("gamma", [0.0, 1e-30, 0.9])
def test_dones_are_the_terminations_whatever_the_discount(gamma):
    batch = batch_of(gamma)
    assert batch.index.tolist() == list(range(STEPS))
    dones = batch.as_dict()["dones"]
    assert dones.dtype == np.float32
    assert np.flatnonzero(dones).tolist() == [TERMINATED - 1, TERMINATED]
