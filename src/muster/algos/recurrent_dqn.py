"""Recurrent DQN: DRQN (Hausknecht and Stone 2015), with stored recurrent states.

`RecurrentDQN` explores as DQN does; the recurrent state, the sequences and their burn-in come from
`RecurrentQLearner`.
"""

from muster.algos.dqn import DQN
from muster.algos.recurrent_q_learner import RecurrentQLearner


class RecurrentDQN(RecurrentQLearner, DQN):
    """A recurrent Q-network that acts and learns as DQN does.

    The arguments are those of `RecurrentQLearner`, with a `DQNConfig` whose `model` is lstm or gru.
    """
