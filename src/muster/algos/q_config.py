"""Options of every Q-learner with replay: its network, its updates, its target network.

A separate file without torch, so that an invalid option is reported before torch is loaded.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import gymnasium as gym

from muster.algos.options import (
    MOST_LR,
    Activation,
    check_choice,
    check_flag,
    check_number,
    check_whole,
    check_widths,
    refuse_together,
)
from muster.algos.replay_config import ReplayConfig
from muster.errors import OptionError


@dataclass(frozen=True)
class QLearningConfig(ReplayConfig):
    """Options of a Q-learner. The defaults are those of SB3's zoo for CartPole-v1."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = ReplayConfig.FIXED_ON_RESUME | {
        "hidden",
        "activation",
        "dueling",
        "model",
    }
    """Options that define a run: its network, and the layout of its replay."""
    UPDATES = "updates_per_train"
    NAME: ClassVar[str]
    """The name of the algorithm in messages."""

    updates_per_train: int = 128
    """Updates in each training phase; phases are `train_every` environment steps apart."""
    lr: float = 2.3e-3
    """Learning rate of Adam."""
    lr_end: float | None = None
    """Final learning rate, reached linearly over the horizon. None: constant."""
    target_update: int = 128
    """Updates between changes of the target network."""
    tau: float = 1.0
    """How far each change moves the target network to the online network: 1 makes it a copy."""
    double: bool = False
    """Double Q-learning: the online network chooses the action that the target network values."""
    dueling: bool = False
    """Separate streams for value and advantages; each stream has its own last hidden layer."""
    max_grad_norm: float | None = 10.0
    """Largest norm of a gradient; larger ones are scaled down to it. None: no limit."""
    huber: bool = True
    """Huber loss: errors beyond 1 count linearly. Otherwise, half the squared error."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of each layer between the encoder of observations and the head."""
    activation: Activation = "relu"
    """Activation after each hidden layer."""
    model: str | None = None
    """Another network: mlp, nature_cnn, impala_cnn, resnet8, or module:Class of your own."""
    horizon: int = 50_000
    """Environment steps for which the run and its schedules are planned."""

    def updates_per_step_exactly(self) -> Fraction:
        """Return the updates per environment step, as an exact fraction."""
        return Fraction(self.updates_per_train, self.train_every)

    def gentler(self) -> str:
        """Return options that make divergence less likely."""
        return f"lr={self.lr / 10:g}, max_grad_norm=1"

    @classmethod
    def check_actions(cls, action_space: gym.Space[Any]) -> None:
        """Raise OptionError unless the action space is Discrete."""
        if not isinstance(action_space, gym.spaces.Discrete):
            raise OptionError(
                f"{cls.NAME} needs Discrete actions; got {action_space}",
                "it compares the values of all actions, so there must be finitely many",
                "muster train ppo ...",
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("lr", self.lr, high=MOST_LR, high_too=True, example=1e-3)
        if self.lr_end is not None:
            check_number("lr_end", self.lr_end, high=MOST_LR, low_too=True, high_too=True)
        for name in ("updates_per_train", "target_update", "horizon"):
            check_whole(name, getattr(self, name))
        check_number("tau", self.tau, high=1, high_too=True, example=1)
        if self.max_grad_norm is not None:
            check_number("max_grad_norm", self.max_grad_norm, example=10)
        for name in ("double", "dueling", "huber"):
            check_flag(name, getattr(self, name))
        check_choice("activation", self.activation, Activation)
        check_widths("hidden", self.hidden)
        self._check_network()

    def _check_network(self) -> None:
        """Raise OptionError for a model or layers that cannot form a network."""
        if not isinstance(self.model, str | None) or self.model == "":
            raise OptionError(
                f"model={self.model!r} is not possible",
                "a config is saved to files, so it must hold the name of a registered model",
                f"{self.NAME}(cfg, obs_space, action_space, model=MyNetwork)",
            )
        if self.dueling and self.model is not None:
            why = "your own model has its own head"
            refuse_together("dueling=True", f"model={self.model!r}", why, "dueling=False")
        if self.dueling and not self.hidden:
            why = "the last hidden layer makes the two streams"
            refuse_together("dueling=True", "hidden=()", why, "hidden=(64,)")
