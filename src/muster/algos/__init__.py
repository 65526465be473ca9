"""Algorithms: each one file with its config, its policy and its update."""

from muster.algos.batches import TransitionBatch
from muster.algos.dqn import DQN, DQNConfig
from muster.nets.errors import NonFiniteError

__all__ = ["DQN", "DQNConfig", "NonFiniteError", "TransitionBatch"]
