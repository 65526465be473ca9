"""DQN with a memory: what is its own. The memory itself is tested with R2D2."""

import numpy as np
import pytest
from ends_env import Ends

from muster import OptionError
from muster.algos.dqn import DQN, DQNConfig, make_dqn
from muster.algos.recurrent_dqn import RecurrentDQN
from muster.data.units import Sequence, Transition

SPACES = Ends.observation_space, Ends.action_space
OPTIONS = {"model": "lstm", "hidden": (8, 16), "sequence": 6, "overlap": 3, "burn_in": 2}


def test_a_model_that_remembers_makes_another_agent_and_draws_sequences():
    plain, memory = DQNConfig(), DQNConfig(**OPTIONS)
    assert type(make_dqn(plain, *SPACES)) is DQN
    agent = make_dqn(memory, *SPACES)
    assert type(agent) is RecurrentDQN and agent.remembers
    assert isinstance(plain.unit, Transition) and isinstance(memory.unit, Sequence)
    assert plain.schema == ()
    assert [each.shape for each in memory.schema] == [(33,)]


def test_it_explores_by_the_schedule_of_dqn():
    agent = make_dqn(DQNConfig(**OPTIONS, eps_start=1.0, eps_end=0.1, eps_decay=100), *SPACES)
    assert agent.epsilon_of(0, range(4), 4) == 1.0
    assert agent.epsilon_of(100, range(4), 4) == pytest.approx(0.1)
    obs = np.ones((500, 3), np.float32)
    for _ in range(2):  # all alike by what it remembers, but for what is random
        actions = agent.explore(obs, 0.0, first=np.ones(500, np.bool_))
        assert len(set(actions.tolist())) == 1
        assert len(set(agent.explore(obs, 1.0).tolist())) == 3
        assert (agent._exploring[:, :-1] == agent._exploring[0, :-1]).all()


@pytest.mark.parametrize(
    "options", [{"quantiles": 5}, {"noisy": True}, {"munchausen": True}], ids=str
)
def test_what_only_learns_from_transitions_is_refused_with_a_memory(options):
    with pytest.raises(OptionError, match=f"model=lstm and {next(iter(options))}"):
        DQNConfig(**OPTIONS, **options)


def test_dueling_heads_are_on_what_remembers():
    assert make_dqn(DQNConfig(**OPTIONS, dueling=True), *SPACES).model.body.value is not None
    assert make_dqn(DQNConfig(**OPTIONS), *SPACES).model.body.value is None
