"""A batch that is cut into shares: the same step as the whole batch, up to rounding."""

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from test_r2d2_agent import buffer_for, collected, make_agent

from muster import OptionError
from muster.algos.dqn import DQN, DQNConfig
from muster.algos.sac import SAC, SACConfig
from muster.nets import NonFiniteError
from muster.nets.shares import SharesInTurn

OBS = spaces.Box(-1, 1, (4,))
ROWS = 30  # four shares of it are not of one size


def dqn(**options):
    return DQN(DQNConfig(hidden=(16, 16), **options), OBS, spaces.Discrete(2), seed=3)


def sac(**options):
    config = SACConfig(hidden=(16, 16), batch_size=ROWS, **options)
    return SAC(config, OBS, spaces.Box(-2, 2, (2,)), seed=3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"double": True, "dueling": True},
        {"quantiles": 5},
        {"munchausen": True},
        {"noisy": True},
    ],
)
def test_dqn_takes_the_step_of_the_whole_batch(make_batch, options):
    whole, cut = dqn(**options), dqn(**options)
    cut.cut_batches(SharesInTurn(4))
    for _ in range(3):
        batch = make_batch(ROWS)
        one, other = whole.update(batch), cut.update(batch)
        assert one == pytest.approx(other, rel=1e-5)
        np.testing.assert_allclose(whole.td_error, cut.td_error, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(whole.weights.vector, cut.weights.vector, rtol=1e-4, atol=1e-5)


def test_a_network_that_remembers_does_too():
    whole, cut = make_agent(seed=2), make_agent(seed=2)
    buffer = buffer_for(whole)
    for block in collected(whole):
        buffer.push(block)
    batch = buffer.sample(10)
    steps = [np.count_nonzero(batch.part(rows).learn) for rows in (slice(0, 5), slice(5, 10))]
    assert steps[0] != steps[1], "shares are weighted by their steps, which are not alike"
    cut.cut_batches(SharesInTurn(4))
    one, other = whole.update(batch), cut.update(batch)
    assert one == pytest.approx(other, rel=1e-4)
    np.testing.assert_allclose(whole.td_error, cut.td_error, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(whole.weights.vector, cut.weights.vector, rtol=1e-3, atol=1e-5)


def transitions(rng, rows):
    return SimpleNamespace(
        obs=rng.normal(size=(rows, 4)).astype(np.float32),
        action=rng.uniform(-2, 2, (rows, 2)).astype(np.float32),
        reward=rng.normal(size=rows).astype(np.float32),
        next_obs=rng.normal(size=(rows, 4)).astype(np.float32),
        discount=np.full(rows, 0.99, np.float32),
        weight=rng.uniform(0.5, 1, rows).astype(np.float32),
    )


@pytest.mark.parametrize("options", [{}, {"critics": 4, "target_critics": 2}, {"quantiles": 5}])
def test_sac_takes_the_steps_of_the_whole_batch(rng, options):
    whole, cut = sac(**options), sac(**options)
    cut.cut_batches(SharesInTurn(4))
    for _ in range(3):
        batch = transitions(rng, ROWS)
        assert whole.update(batch) == pytest.approx(cut.update(batch), rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(whole.weights.vector, cut.weights.vector, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("options", [{"dropout": 0.1}, {"batch_norm": True}])
def test_layers_that_mix_rows_or_draw_numbers_are_refused(options):
    with pytest.raises(OptionError, match=r"learners=\.\.\. is not possible with the layer"):
        sac(**options).cut_batches(SharesInTurn(2))


def test_what_is_not_finite_is_named_whichever_share_it_is_in(make_batch):
    agent = dqn()
    agent.cut_batches(SharesInTurn(4))
    batch = make_batch(ROWS)
    batch.reward[-1] = np.nan
    with pytest.raises(NonFiniteError, match=rf"reward\[{ROWS - 1}\] of the batch is nan"):
        agent.update(batch)
    assert agent.train_iter == 0
