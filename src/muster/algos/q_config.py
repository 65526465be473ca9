"""What every Q-learner with replay is told: its network, its updates, its target network.

A file of its own, without torch: what is wrong with an option is said before that is loaded.
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
    """How a Q-network learns. The defaults are those of SB3's zoo for CartPole-v1."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = ReplayConfig.FIXED_ON_RESUME | {
        "hidden",
        "activation",
        "dueling",
        "model",
    }
    """What makes a run what it is: its network, and what its replay was made for."""
    UPDATES = "updates_per_train"
    NAME: ClassVar[str]
    """What messages call the algorithm."""

    updates_per_train: int = 128
    """Updates in each phase of them, `train_every` environment steps apart."""
    lr: float = 2.3e-3
    """Learning rate of Adam."""
    lr_end: float | None = None
    """What the learning rate falls to, in a line over the horizon. None: it stays."""
    target_update: int = 128
    """Updates from one change of the target network to the next."""
    tau: float = 1.0
    """How far the target network then goes towards the learning one: 1 makes it a copy."""
    double: bool = False
    """Let the learning network choose the action that the target network values."""
    dueling: bool = False
    """Separate streams for value and advantages; the last hidden layer is each stream's own."""
    max_grad_norm: float | None = 10.0
    """A longer gradient is shortened to this. None: never."""
    huber: bool = True
    """Errors beyond 1 count linearly; else the loss is half the squared error."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of each layer between the encoder of observations and the head."""
    activation: Activation = "relu"
    """After each of these layers."""
    model: str | None = None
    """Another network: mlp, nature_cnn, impala_cnn, resnet8, or module:Class of your own."""
    horizon: int = 50_000
    """Environment steps that the run is planned for."""

    def updates_per_step_exactly(self) -> Fraction:
        """Return the updates for each environment step, without rounding."""
        return Fraction(self.updates_per_train, self.train_every)

    def gentler(self) -> str:
        """Return options with which learning is less likely to diverge."""
        return f"lr={self.lr / 10:g}, max_grad_norm=1"

    @classmethod
    def check_actions(cls, action_space: gym.Space[Any]) -> None:
        """Refuse actions that a Q-network cannot choose from."""
        if not isinstance(action_space, gym.spaces.Discrete):
            raise OptionError(
                f"{cls.NAME} needs Discrete actions; got {action_space}",
                "it compares the values of all actions, so they have to be countable",
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
        """Refuse a model, or layers, that make no network."""
        if not isinstance(self.model, str | None) or self.model == "":
            raise OptionError(
                f"model={self.model!r} is not possible",
                "a config is written to files, so it holds the name of a registered model",
                f"{self.NAME}(cfg, obs_space, action_space, model=MyNetwork)",
            )
        if self.dueling and self.model is not None:
            why = "a model of your own has its own head"
            refuse_together("dueling=True", f"model={self.model!r}", why, "dueling=False")
        if self.dueling and not self.hidden:
            why = "the last hidden layer makes the two streams"
            refuse_together("dueling=True", "hidden=()", why, "hidden=(64,)")
