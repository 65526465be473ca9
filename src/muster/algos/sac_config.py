"""Options of SAC, validated on construction.

A separate file without torch, so that an invalid option is reported before torch is loaded.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

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
from muster.algos.replay_config import ReplayConfig
from muster.errors import OptionError

MOST_CRITICS = 64
MOST_QUANTILES = 1_024


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    """Options of SAC. The defaults are those of SB3, except for the buffer's size."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = ReplayConfig.FIXED_ON_RESUME | {
        "hidden",
        "activation",
        "model",
        "critics",
        "layer_norm",
        "dropout",
        "batch_norm",
        "quantiles",
        "auto_temperature",
    }
    """Options that define a run: its networks, and the layout of its replay."""
    UPDATES = "updates_per_step"

    batch_size: int = 256
    """Transitions per update."""
    buffer_size: int = 300_000
    """Capacity of replay, in transitions."""
    learning_starts: int = 1_000
    """Environment steps before the first update; until then actions are uniformly random."""
    train_every: int = 1
    """Environment steps between training phases."""
    updates_per_step: float = 1.0
    """Updates per environment step; less than 1 for one update every few steps."""
    lr_actor: float = 3e-4
    """Learning rate of the policy."""
    lr_critic: float = 3e-4
    """Learning rate of the critics."""
    lr_temperature: float = 3e-4
    """Learning rate of the temperature."""
    adam_beta1: float = 0.9
    """Decay of Adam's running mean of gradients: 0.5 for CrossQ."""
    temperature: float = 1.0
    """Weight of the entropy relative to reward; the initial value if the temperature is learnt."""
    auto_temperature: bool = True
    """Learn the temperature, so that the entropy approaches `target_entropy`."""
    target_entropy: float | None = None
    """Target entropy of one action. None: minus the number of dimensions of an action."""
    tau: float = 0.005
    """How far the target critics move towards the critics after each update."""
    policy_every: int = 1
    """Updates of the critics per update of the policy."""
    critics: int = 2
    """Number of critics: 10 for REDQ."""
    target_critics: int = 2
    """The target takes the lowest value of this many critics, drawn anew for each update."""
    layer_norm: bool = False
    """Normalise the hidden layers of the critics: with `dropout`, DroQ."""
    dropout: float = 0.0
    """Probability of dropping a hidden output of a critic: 0.01 for DroQ."""
    batch_norm: bool = False
    """Batch-normalised critics without target networks: CrossQ."""
    quantiles: int = 0
    """Quantiles that each critic learns, 25 for TQC; 0: the mean only."""
    drop_quantiles: int = 2
    """With `quantiles`: how many of each critic's highest quantiles the target ignores."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of each hidden layer, of the policy and of each critic."""
    activation: Activation = "relu"
    """Activation after each hidden layer."""
    model: str | None = None
    """Another network to encode observations: nature_cnn, impala_cnn, resnet8, module:Class."""
    horizon: int = 1_000_000
    """Environment steps for which the run and its schedules are planned."""

    def updates_per_step_exactly(self) -> Fraction:
        """Return the updates per environment step, as an exact fraction."""
        return Fraction(str(self.updates_per_step))

    def gentler(self) -> str:
        """Return options that make divergence less likely."""
        return f"lr_critic={self.lr_critic / 10:g}, lr_actor={self.lr_actor / 10:g}"

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Raise OptionError unless actions are a Box with finite bounds."""
        if not isinstance(action_space, gym.spaces.Box):
            raise OptionError(
                f"SAC needs Box actions; got {action_space}",
                "it draws actions from a continuous distribution",
                "muster train dqn ..., or muster train ppo ...",
            )
        if not (np.isfinite(action_space.low).all() and np.isfinite(action_space.high).all()):
            raise OptionError(
                f"SAC needs actions with bounds; got {action_space}",
                "it scales its actions to the bounds",
                "gymnasium.wrappers.RescaleAction(env, -1, 1), after setting bounds",
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lr_actor", "lr_critic", "lr_temperature"):
            check_number(name, getattr(self, name), high=MOST_LR, high_too=True, example=3e-4)
        check_number("updates_per_step", self.updates_per_step, high=10_000, high_too=True)
        check_number("adam_beta1", self.adam_beta1, high=1, low_too=True, example=0.9)
        check_number(
            "temperature", self.temperature, low_too=not self.auto_temperature, example=0.2
        )
        check_number("tau", self.tau, high=1, high_too=True, example=0.005)
        check_number("dropout", self.dropout, high=1, low_too=True, example=0.01)
        if self.target_entropy is not None:
            low = -float("inf")
            check_number("target_entropy", self.target_entropy, low=low, example=-1.0)
        for name in ("policy_every", "horizon"):
            check_whole(name, getattr(self, name))
        check_whole("critics", self.critics, high=MOST_CRITICS)
        check_whole("target_critics", self.target_critics, high=MOST_CRITICS)
        check_whole("quantiles", self.quantiles, low=0, high=MOST_QUANTILES)
        check_whole("drop_quantiles", self.drop_quantiles, low=0, high=MOST_QUANTILES)
        for name in ("auto_temperature", "layer_norm", "batch_norm"):
            check_flag(name, getattr(self, name))
        check_choice("activation", self.activation, Activation)
        check_widths("hidden", self.hidden)
        check_text("model", self.model)
        self._check_critics()

    def _check_critics(self) -> None:
        given = f"critics={self.critics}"
        if self.target_critics > self.critics:
            why = "the target uses a subset of the critics"
            refuse_together(
                given,
                f"target_critics={self.target_critics}",
                why,
                f"target_critics={self.critics}",
            )
        if self.quantiles and self.drop_quantiles >= self.quantiles:
            refuse_together(
                f"quantiles={self.quantiles}",
                f"drop_quantiles={self.drop_quantiles}",
                "no quantile would be left",
                "drop_quantiles=2",
            )
        if self.quantiles and self.target_critics != self.critics:
            refuse_together(
                f"quantiles={self.quantiles}",
                f"target_critics={self.target_critics}",
                "the target pools the quantiles of all critics",
                f"target_critics={self.critics}",
            )
        if self.batch_norm and self.dropout:
            why = "dropout changes the statistics that batch norm learns"
            refuse_together("batch_norm=True", f"dropout={self.dropout}", why, "dropout=0")
