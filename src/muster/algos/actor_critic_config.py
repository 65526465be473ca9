"""Options of every algorithm with a policy and a value that learn from advantages in step."""

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym

from muster.algos.in_step_config import InStepConfig
from muster.algos.options import (
    MOST_LR,
    Activation,
    check_choice,
    check_flag,
    check_number,
    check_text,
    check_whole,
    check_widths,
    refuse_together,
)
from muster.nets.action_head import ActionHead


@dataclass(frozen=True)
class ActorCriticConfig(InStepConfig):
    """A policy, a value, and how both are moved."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = InStepConfig.FIXED_ON_RESUME | {
        "hidden",
        "activation",
        "shared",
        "log_std",
    }
    """What makes a run what it is: its network, and how its rollouts are cut."""

    lr: float = 2.5e-4
    """Learning rate of Adam."""
    lr_end: float | None = None
    """What the learning rate falls to, in a line over the horizon. Default: it stays."""
    gae_lambda: float = 0.95
    """Advantages: 0 trusts the values, 1 the rewards alone."""
    value_coef: float = 0.5
    """Weight of the value's loss."""
    entropy_coef: float = 0.01
    """Weight of the entropy, which rewards trying things out."""
    entropy_end: float | None = None
    """What that weight falls to over the horizon. Default: it stays."""
    max_grad_norm: float | None = 0.5
    """Longest gradient; longer ones are shortened to it."""
    normalize_advantage: bool = True
    """Bring the advantages of a rollout to mean 0 and spread 1."""
    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Activation = "tanh"
    """What follows each of them."""
    shared: bool = False
    """One stack of hidden layers for actions and value; else one for each."""
    log_std: float = 0.0
    """Logarithm of the standard deviation of continuous actions, to begin with."""
    bf16: bool = False
    """Convolve in bfloat16, on processors with instructions for it."""
    compile: bool = False
    """Run the network through torch.compile: half a minute at first, for long runs."""
    horizon: int = 500_000
    """Environment steps that the run is planned for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("lr", self.lr, high=MOST_LR, high_too=True, example=2.5e-4)
        check_number("gae_lambda", self.gae_lambda, high=1, low_too=True, high_too=True)
        for name in ("value_coef", "entropy_coef"):
            check_number(name, getattr(self, name), high=1e6, low_too=True, example=0.5)
        for name, high in (("lr_end", MOST_LR), ("entropy_end", 1e6)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), high=high, low_too=True, high_too=True)
        if self.max_grad_norm is not None:
            check_number("max_grad_norm", self.max_grad_norm, example=0.5)
        check_number("log_std", self.log_std, low=-20, high=20, low_too=True, high_too=True)
        check_whole("horizon", self.horizon)
        for name in ("normalize_advantage", "shared"):
            check_flag(name, getattr(self, name))
        for name in ("bf16", "compile"):
            check_flag(name, getattr(self, name))
        check_choice("activation", self.activation, Activation)
        check_widths("hidden", self.hidden)
        check_text("model", self.model)
        if self.model == "lstm" and not self.hidden:
            why = "the last hidden layer is what remembers"
            refuse_together("model=lstm", "hidden=()", why, "hidden=(64,)")

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Refuse actions that there is no policy for."""
        ActionHead.of(action_space)
