"""Options of DQN, validated on construction.

A separate file without torch, so that an invalid option is reported before torch is loaded.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from muster.algos.options import (
    check_choice,
    check_flag,
    check_number,
    check_whole,
    refuse_together,
)
from muster.algos.q_config import QLearningConfig
from muster.algos.sequence_config import SequenceConfig

Schedule = Literal["linear", "exp"]
MOST_QUANTILES = 1_024


@dataclass(frozen=True)
class DQNConfig(SequenceConfig, QLearningConfig):
    """Options of DQN. The defaults are those of SB3's zoo for CartPole-v1.

    With `model` lstm or gru, it learns from sequences; `batch_size` counts those.
    """

    NAME = "DQN"
    FIXED_ON_RESUME: ClassVar[frozenset[str]] = (
        QLearningConfig.FIXED_ON_RESUME | SequenceConfig.SEQUENCE_OPTIONS | {"quantiles", "noisy"}
    ) - {"n_step"}

    eps_start: float = 1.0
    """Probability of a random action at the start."""
    eps_end: float = 0.04
    """Final probability of a random action."""
    eps_decay: float = 8_000.0
    """Environment steps. Linear: `eps_end` is reached after this many. Exp: the time constant."""
    eps_schedule: Schedule = "linear"
    """Shape of the decay from `eps_start` to `eps_end`."""
    quantiles: int = 0
    """Number of quantiles to learn of each action's return (QR-DQN: 200); 0: the mean only."""
    noisy: bool = False
    """Explore with random weights instead of random actions; the eps options have no effect."""
    munchausen: bool = False
    """Soft targets, and a share of the log-probability of the action taken added to the reward."""
    munchausen_alpha: float = 0.9
    """With `munchausen`: the share of the log-probability that is added to the reward."""
    munchausen_tau: float = 0.03
    """With `munchausen`: the temperature of the policy, in units of Q."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("quantiles", self.quantiles, low=0, high=MOST_QUANTILES)
        for name in ("noisy", "munchausen"):
            check_flag(name, getattr(self, name))
        check_number("munchausen_alpha", self.munchausen_alpha, high=1, low_too=True, example=0.9)
        check_number("munchausen_tau", self.munchausen_tau, example=0.03)
        for name in ("quantiles", "noisy", "munchausen"):
            if self.remembers and getattr(self, name):
                why = "a recurrent network learns plain values, from sequences"
                off = "0" if name == "quantiles" else "False"
                given = f"{name}={getattr(self, name)}"
                refuse_together(f"model={self.model}", given, why, f"{name}={off}")
        if self.munchausen and self.double:
            why = "soft targets are a mean over all actions: there is no action to choose"
            refuse_together("munchausen=True", "double=True", why, "double=False")
        if self.munchausen and self.n_step > 1:
            why = "each of the steps would need an entropy term, and replay sums rewards only"
            refuse_together("munchausen=True", f"n_step={self.n_step}", why, "n_step=1")
        if self.quantiles and not self.huber:
            why = "quantiles are learnt with the Huber loss"
            refuse_together(f"quantiles={self.quantiles}", "huber=False", why, "huber=True")
        for name in ("eps_start", "eps_end"):
            check_number(name, getattr(self, name), high=1, low_too=True, high_too=True)
        check_number("eps_decay", self.eps_decay, example=10_000)
        check_choice("eps_schedule", self.eps_schedule, Schedule)
