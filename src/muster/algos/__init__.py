"""Algorithms: each one file with its policy and its update, and a light one with its config.

Importing this, or a configuration, does not load torch; the algorithms do.
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.algos.batches import TransitionBatch
    from muster.algos.dqn import DQN
    from muster.algos.dqn_config import DQNConfig
    from muster.nets.errors import NonFiniteError

__all__ = ["DQN", "DQNConfig", "NonFiniteError", "TransitionBatch"]

__getattr__ = load_when_asked_for(
    __name__,
    {
        "DQN": "muster.algos.dqn",
        "DQNConfig": "muster.algos.dqn_config",
        "NonFiniteError": "muster.nets.errors",
        "TransitionBatch": "muster.algos.batches",
    },
)
