"""DQN with a network that remembers: DRQN (Hausknecht and Stone 2015), from stored states.

It explores as DQN does; the memory, the sequences and their burn-in are those of every
`RecurrentQLearner`.
"""

from muster.algos.dqn import DQN
from muster.algos.recurrent_q_learner import RecurrentQLearner


class RecurrentDQN(RecurrentQLearner, DQN):
    """A Q-network with a memory that acts and learns as DQN does.

    The arguments are those of `RecurrentQLearner`, with a `DQNConfig` whose `model` is lstm or gru.
    """
