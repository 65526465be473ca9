"""How DQN learns, checked when it is made.

A file of its own, without torch: what is wrong with an option is said before that is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium as gym

from muster.algos.options import (
    MOST_ROWS,
    check_choice,
    check_flag,
    check_number,
    check_whole,
    check_widths,
    refuse_together,
)
from muster.errors import OptionError

Schedule = Literal["linear", "exp"]
Activation = Literal["relu", "tanh"]
MOST_LR = 1_000.0
"""Largest learning rate: Adam moves a weight by about so much, and beyond it float32 ends soon."""
MOST_SHARDS = 64
"""One learner has to hear all of them."""


@dataclass(frozen=True)
class DQNConfig:
    """How DQN learns. The defaults are those of Stable-Baselines3's zoo for CartPole-v1."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {
            "hidden",
            "activation",
            "dueling",
            "model",
            "buffer_size",
            "replay_shards",
            "prioritized",
            "alpha",
        }
    )
    """What makes a run what it is: its network, and what its replay was made for."""

    lr: float = 2.3e-3
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount per environment step."""
    batch_size: int = 64
    """Transitions per update."""
    buffer_size: int = 100_000
    """Transitions that replay holds."""
    replay_shards: int = 0
    """With --workers: nodes that hold a part of replay each; 0 keeps it at the learner."""
    learning_starts: int = 1_000
    """Environment steps before the first update."""
    train_every: int = 256
    """Environment steps from one phase of updates to the next."""
    updates_per_train: int = 128
    """Updates in each such phase."""
    target_update: int = 128
    """Updates from one change of the target network to the next."""
    tau: float = 1.0
    """How far the target network then goes towards the learning one: 1 makes it a copy."""
    double: bool = False
    """Let the learning network choose the action that the target network values."""
    dueling: bool = False
    """Separate streams for value and advantages; the last hidden layer is each stream's own."""
    n_step: int = 1
    """Steps whose rewards are summed before the value of what follows is added."""
    prioritized: bool = False
    """Draw transitions by the size of their TD error."""
    alpha: float = 0.6
    """Prioritised replay: 0 draws all alike, 1 in proportion to the error."""
    beta_start: float = 0.4
    """Prioritised replay: how much of the drawing's bias is corrected at first."""
    beta_end: float = 1.0
    """The same after `horizon` environment steps; linear in between."""
    max_grad_norm: float | None = 10.0
    """A longer gradient is shortened to this. None: never."""
    huber: bool = True
    """Errors beyond 1 count linearly; else the loss is half the squared error."""
    eps_start: float = 1.0
    """Probability of a random action at first."""
    eps_end: float = 0.04
    """What it goes to."""
    eps_decay: float = 8_000.0
    """In environment steps. Linear: `eps_end` is reached after so many. Exp: the time constant."""
    eps_schedule: Schedule = "linear"
    """How it gets there."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of each layer between the encoder of observations and the head."""
    activation: Activation = "relu"
    """After each of these layers."""
    model: str | None = None
    """Another network: mlp, nature_cnn, impala_cnn, or module:Class of your own."""
    horizon: int = 50_000
    """Environment steps that the run is planned for."""

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Refuse actions that DQN cannot choose from."""
        if not isinstance(action_space, gym.spaces.Discrete):
            raise OptionError(
                f"DQN needs Discrete actions; got {action_space}",
                "it compares the values of all actions, so they have to be countable",
                "muster train ppo ...",
            )

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Whether what a checkpoint has is without the replay that learning goes on with."""
        return "replay" not in parts

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Refuse to go on with a run; what else does not fit is refused by who loads it."""
        if "replay" not in parts:
            return
        saved = parts["replay"].get("shards")
        there = 0 if saved is None else len(saved)
        if there != self.replay_shards:
            raise OptionError(
                f"replay_shards={self.replay_shards} is not possible here",
                f"the checkpoint has replay {f'in {there} shards' if there else 'of one buffer'}, "
                "and each goes on only with what one like it has stored",
                f"replay_shards={there}",
            )

    def __post_init__(self) -> None:
        check_number("lr", self.lr, high=MOST_LR, high_too=True, example=1e-3)
        check_number("gamma", self.gamma, high=1, low_too=True, high_too=True, example=0.99)
        for name in ("batch_size", "buffer_size", "n_step"):
            check_whole(name, getattr(self, name), high=MOST_ROWS)
        for name in ("train_every", "updates_per_train", "target_update", "horizon"):
            check_whole(name, getattr(self, name))
        check_whole("learning_starts", self.learning_starts, low=0)
        check_whole("replay_shards", self.replay_shards, low=0, high=MOST_SHARDS)
        check_number("tau", self.tau, high=1, high_too=True, example=1)
        for name in ("alpha", "beta_start", "beta_end", "eps_start", "eps_end"):
            check_number(name, getattr(self, name), high=1, low_too=True, high_too=True)
        if self.max_grad_norm is not None:
            check_number("max_grad_norm", self.max_grad_norm, example=10)
        for name in ("double", "dueling", "prioritized", "huber"):
            check_flag(name, getattr(self, name))
        check_number("eps_decay", self.eps_decay, example=10_000)
        check_choice("eps_schedule", self.eps_schedule, Schedule)
        check_choice("activation", self.activation, Activation)
        check_widths("hidden", self.hidden)
        if not isinstance(self.model, str | None) or self.model == "":
            raise OptionError(
                f"model={self.model!r} is not possible",
                "a config is written to files, so it holds the name of a registered model",
                "DQN(cfg, obs_space, action_space, model=MyNetwork)",
            )
        size = f"buffer_size={self.buffer_size}"
        if self.batch_size > self.buffer_size:
            fix = f"buffer_size={100 * self.batch_size}"
            refuse_together(f"batch_size={self.batch_size}", size, "no batch would ever fit", fix)
        if self.n_step >= self.buffer_size:
            why = "no sum of rewards would ever be complete"
            refuse_together(f"n_step={self.n_step}", size, why, "n_step=1")
        if self.dueling and self.model is not None:
            why = "a model of your own has its own head"
            refuse_together("dueling=True", f"model={self.model!r}", why, "dueling=False")
        if self.dueling and not self.hidden:
            why = "the last hidden layer makes the two streams"
            refuse_together("dueling=True", "hidden=()", why, "hidden=(64,)")
