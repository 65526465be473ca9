"""Algorithms: for each, one file with policy and update, and a light one with its configuration.

Importing this package, or a configuration, does not load torch; importing an algorithm does. The
package also exports the building blocks for your own algorithm (docs/own_algorithm.md).
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.algos.actor_critic import ActorCriticAgent
    from muster.algos.actor_critic_config import ActorCriticConfig
    from muster.algos.base import Algorithm
    from muster.algos.batches import TransitionBatch
    from muster.algos.dqn import DQN
    from muster.algos.dqn_config import DQNConfig
    from muster.algos.in_step_config import Epochs, InStepConfig
    from muster.algos.rollout_agent import RolloutAgent
    from muster.algos.torch_loss import RolloutRows, TorchLossAgent
    from muster.nets.errors import NonFiniteError

__all__ = [
    "DQN",
    "ActorCriticAgent",
    "ActorCriticConfig",
    "Algorithm",
    "DQNConfig",
    "Epochs",
    "InStepConfig",
    "NonFiniteError",
    "RolloutAgent",
    "RolloutRows",
    "TorchLossAgent",
    "TransitionBatch",
]

__getattr__ = load_when_asked_for(
    __name__,
    {
        "ActorCriticAgent": "muster.algos.actor_critic",
        "ActorCriticConfig": "muster.algos.actor_critic_config",
        "Algorithm": "muster.algos.base",
        "DQN": "muster.algos.dqn",
        "DQNConfig": "muster.algos.dqn_config",
        "Epochs": "muster.algos.in_step_config",
        "InStepConfig": "muster.algos.in_step_config",
        "NonFiniteError": "muster.nets.errors",
        "RolloutAgent": "muster.algos.rollout_agent",
        "RolloutRows": "muster.algos.torch_loss",
        "TorchLossAgent": "muster.algos.torch_loss",
        "TransitionBatch": "muster.algos.batches",
    },
)
