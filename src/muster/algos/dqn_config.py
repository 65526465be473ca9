"""How DQN learns, checked when it is made.

A file of its own, without torch: what is wrong with an option is said before that is loaded.
"""

from dataclasses import dataclass
from typing import Literal

from muster.algos.options import check_choice, check_number
from muster.algos.q_config import QLearningConfig

Schedule = Literal["linear", "exp"]


@dataclass(frozen=True)
class DQNConfig(QLearningConfig):
    """How DQN learns. The defaults are those of SB3's zoo for CartPole-v1."""

    NAME = "DQN"

    eps_start: float = 1.0
    """Probability of a random action at first."""
    eps_end: float = 0.04
    """What it goes to."""
    eps_decay: float = 8_000.0
    """In environment steps. Linear: `eps_end` is reached after so many. Exp: the time constant."""
    eps_schedule: Schedule = "linear"
    """How it gets there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps_start", "eps_end"):
            check_number(name, getattr(self, name), high=1, low_too=True, high_too=True)
        check_number("eps_decay", self.eps_decay, example=10_000)
        check_choice("eps_schedule", self.eps_schedule, Schedule)
