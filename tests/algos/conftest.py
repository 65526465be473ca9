from types import SimpleNamespace

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def make_batch(rng):
    """A function that draws a batch with leading shape [B] or [K, B]."""

    def make(*shape, n_obs=4, actions=2):
        return SimpleNamespace(
            obs=rng.normal(size=(*shape, n_obs)).astype(np.float32),
            action=rng.integers(0, actions, shape),
            reward=rng.normal(size=shape).astype(np.float32),
            next_obs=rng.normal(size=(*shape, n_obs)).astype(np.float32),
            discount=rng.choice(np.array([0.99, 0.0], np.float32), shape),
            weight=rng.uniform(0.5, 1, shape).astype(np.float32),
        )

    return make
