"""Options of PPO, validated on construction.

A separate file without torch, so that an invalid option is reported before torch is loaded.
"""

from dataclasses import dataclass

from muster.algos.actor_critic_config import ActorCriticConfig
from muster.algos.in_step_config import Epochs
from muster.algos.options import check_number


@dataclass(frozen=True)
class PPOConfig(Epochs, ActorCriticConfig):
    """Options of PPO. The defaults are those of most implementations."""

    clip: float = 0.2
    """Clip range: how far the ratio of new to old action probability may leave 1."""
    clip_end: float | None = None
    """Final clip range, reached linearly over the horizon. None: constant."""
    value_clip: float = 0.0
    """How far a value may move from its estimate in the rollout; 0: no limit."""
    target_kl: float | None = None
    """Stop learning from a rollout after an epoch whose KL divergence exceeds this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("clip", self.clip, high=10, example=0.2)
        check_number("value_clip", self.value_clip, high=1e6, low_too=True, example=0.5)
        if self.clip_end is not None:
            check_number("clip_end", self.clip_end, high=10.0, low_too=True, high_too=True)
        if self.target_kl is not None:
            check_number("target_kl", self.target_kl, example=0.5)
