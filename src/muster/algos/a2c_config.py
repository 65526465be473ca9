"""How A2C learns, validated on construction. Does not import torch."""

from dataclasses import dataclass

from muster.algos.actor_critic_config import ActorCriticConfig


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """How A2C learns: short rollouts, each learnt from once and as a whole."""

    rollout: int = 8
    """Steps of every environment from one update to the next."""
    sequence: int = 8
    """Recurrent networks: steps in one training sequence."""
    lr: float = 7e-4
    """Learning rate of Adam."""
    gae_lambda: float = 1.0
    """Lambda of the advantages: 0 trusts only the value estimates, 1 only the rewards."""
    normalize_advantage: bool = False
    """Normalise the advantages of a rollout to mean 0 and standard deviation 1."""
