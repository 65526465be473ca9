"""Options of every algorithm with a policy and a value function that learns from advantages."""

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym

from muster.algos.in_step_config import InStepConfig
from muster.algos.network_config import NetworkConfig
from muster.algos.options import check_flag, check_number
from muster.nets.action_head import ActionHead


@dataclass(frozen=True)
class PolicyAndValueConfig(NetworkConfig):
    """Options of a policy, a value function and their loss, for any estimate of advantages."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = NetworkConfig.FIXED_ON_RESUME | {
        "shared",
        "log_std",
    }
    """Options that define a run: its network."""

    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus, which rewards exploration."""
    entropy_end: float | None = None
    """Final weight of the entropy, reached linearly over the horizon. None: constant."""
    normalize_advantage: bool = True
    """Normalise the advantages of a rollout to mean 0 and standard deviation 1."""
    shared: bool = False
    """Share the hidden layers between policy and value; otherwise each has its own."""
    log_std: float = 0.0
    """Initial logarithm of the standard deviation of continuous actions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("value_coef", "entropy_coef"):
            check_number(name, getattr(self, name), high=1e6, low_too=True, example=0.5)
        if self.entropy_end is not None:
            check_number("entropy_end", self.entropy_end, high=1e6, low_too=True, high_too=True)
        check_number("log_std", self.log_std, low=-20, high=20, low_too=True, high_too=True)
        for name in ("normalize_advantage", "shared"):
            check_flag(name, getattr(self, name))

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Raise OptionError for an action space that no policy supports."""
        ActionHead.of(action_space)


@dataclass(frozen=True)
class ActorCriticConfig(PolicyAndValueConfig, InStepConfig):
    """Options of a policy and a value function that learn in step with rollouts."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = (
        PolicyAndValueConfig.FIXED_ON_RESUME | InStepConfig.FIXED_ON_RESUME
    )
    """Options that define a run: its network, and how its rollouts are divided."""

    gae_lambda: float = 0.95
    """Lambda of the advantages: 0 trusts only the value estimates, 1 only the rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gae_lambda", self.gae_lambda, high=1, low_too=True, high_too=True)
