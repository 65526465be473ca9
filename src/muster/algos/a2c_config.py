"""Options of A2C, validated on construction. Does not import torch."""

from dataclasses import dataclass

from muster.algos.actor_critic_config import ActorCriticConfig


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """Options of A2C: short rollouts, one update from each whole rollout."""

    rollout: int = 8
    """Steps of every environment between updates."""
    sequence: int = 8
    """Recurrent networks: steps in one training sequence."""
    lr: float = 7e-4
    """Learning rate of Adam."""
    gae_lambda: float = 1.0
    """Lambda of the advantages: 0 trusts only the value estimates, 1 only the rewards."""
    normalize_advantage: bool = False
    """Normalise the advantages of a rollout to mean 0 and standard deviation 1."""
