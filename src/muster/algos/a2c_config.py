"""How A2C learns, checked when it is made. Without torch, as every configuration."""

from dataclasses import dataclass

from muster.algos.actor_critic_config import ActorCriticConfig


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """How A2C learns: short rollouts, each learnt from once and as a whole."""

    rollout: int = 8
    """Steps of every environment from one update to the next."""
    sequence: int = 8
    """Recurrent networks: steps that are learnt from in one piece."""
    lr: float = 7e-4
    """Learning rate of Adam."""
    gae_lambda: float = 1.0
    """Advantages: 0 trusts the values, 1 the rewards alone."""
    normalize_advantage: bool = False
    """Bring the advantages of a rollout to mean 0 and spread 1."""
