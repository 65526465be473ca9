"""A gradient that is computed here and applied there is the update that one agent would take."""

import numpy as np
import pytest
from gymnasium import spaces

from muster import OptionError
from muster.algos import DQN, DQNConfig, NonFiniteError

BOX = spaces.Box(-1, 1, (4,))
TWO = spaces.Discrete(2)


def _agent(seed=0, **options):
    return DQN(DQNConfig(hidden=(16,), **options), BOX, TWO, seed)


@pytest.mark.parametrize("options", [{}, {"target_update": 2, "tau": 0.5}])
def test_a_gradient_applied_elsewhere_is_the_update_itself(make_batch, options):
    alone, home, away = _agent(**options), _agent(**options), _agent(**options)
    for train_iter in range(1, 6):
        batch = make_batch(8)
        whole = alone.update(batch)
        gradient, metrics = away.gradient(batch)
        norm = home.apply_gradient(gradient)
        away.follow(home.parts()["policy"], train_iter)
        assert {**metrics, "grad_norm": norm} == whole
        assert home.policy_sha256() == away.policy_sha256() == alone.policy_sha256()
        for name, target in away.parts()["target"].items():
            assert np.allclose(target, alone.parts()["target"][name], atol=1e-7)


def test_computing_a_gradient_changes_no_weight_and_gives_a_copy(make_batch):
    agent = _agent()
    before = agent.policy_sha256()
    first, _ = agent.gradient(make_batch(8))
    kept = {name: each.copy() for name, each in first.items()}
    agent.gradient(make_batch(8))
    assert agent.policy_sha256() == before and agent.train_iter == 0
    assert all(np.array_equal(first[name], kept[name]) for name in kept)


def test_a_target_network_that_missed_a_change_catches_up(make_batch):
    agent, other = _agent(target_update=10), _agent(seed=1)
    agent.follow(other.parts()["policy"], 9)
    target = agent.parts()["target"]["head.weight"]
    assert not np.array_equal(target, other.parts()["policy"]["head.weight"])
    agent.follow(other.parts()["policy"], 31)
    for name, weight in other.parts()["policy"].items():
        assert np.array_equal(agent.parts()["target"][name], weight)


def test_a_gradient_of_another_network_or_of_no_number_is_refused(make_batch):
    agent = _agent()
    gradient, _ = agent.gradient(make_batch(8))
    before = agent.policy_sha256()
    with pytest.raises(OptionError, match="parameters are"):
        agent.apply_gradient({"head.bias": gradient["head.bias"]})
    with pytest.raises(OptionError, match="parameters are"):
        agent.apply_gradient({**gradient, "head.bias": np.zeros(1, np.float32)})
    with pytest.raises(NonFiniteError):
        agent.apply_gradient({**gradient, "head.bias": np.full(2, np.nan, np.float32)})
    assert agent.policy_sha256() == before
