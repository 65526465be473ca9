"""How PPO learns, checked when it is made.

A file of its own, without torch: what is wrong with an option is said before that is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym

from muster.algos.dqn_config import MOST_LR, Activation
from muster.algos.options import (
    check_choice,
    check_flag,
    check_number,
    check_text,
    check_whole,
    check_widths,
    refuse_together,
)
from muster.errors import OptionError
from muster.nets.action_head import ActionHead

MOST_SLOTS = 4_096
MOST_ROLLOUT = 1_000_000


@dataclass(frozen=True)
class PPOConfig:
    """How PPO learns. The defaults are those of most implementations for small problems."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {
            "hidden",
            "activation",
            "shared",
            "log_std",
            "model",
            "normalize_obs",
            "normalize_reward",
            "rollout",
            "sequence",
            "slots",
            "lag",
        }
    )
    """What makes a run what it is: its network, and how its rollouts are cut."""

    lr: float = 2.5e-4
    """Learning rate of Adam."""
    lr_end: float | None = None
    """What the learning rate falls to, in a line over the horizon. Default: it stays."""
    gamma: float = 0.99
    """Discount per environment step."""
    gae_lambda: float = 0.95
    """Advantages: 0 trusts the values, 1 the rewards alone."""
    rollout: int = 128
    """Steps of every environment from one phase of learning to the next."""
    epochs: int = 4
    """How often each rollout is learnt from."""
    minibatches: int = 4
    """Into how many parts a rollout is cut for it: updates per epoch."""
    clip: float = 0.2
    """How far the probability of an action may move, as a ratio to what it was."""
    clip_end: float | None = None
    """What that limit falls to over the horizon. Default: it stays."""
    value_clip: float = 0.0
    """How far a value may move from what it was; 0 for as far as it likes."""
    value_coef: float = 0.5
    """Weight of the value's loss."""
    entropy_coef: float = 0.01
    """Weight of the entropy, which rewards trying things out."""
    entropy_end: float | None = None
    """What that weight falls to over the horizon. Default: it stays."""
    max_grad_norm: float | None = 0.5
    """Longest gradient; longer ones are shortened to it."""
    target_kl: float | None = None
    """Stop learning from a rollout after an epoch whose KL divergence is above this."""
    normalize_advantage: bool = True
    """Bring the advantages of a rollout to mean 0 and spread 1."""
    normalize_obs: bool = False
    """Bring observations to mean 0 and spread 1; a part of the policy."""
    normalize_reward: bool = False
    """Divide rewards by the spread of the discounted return."""
    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Activation = "tanh"
    """What follows each of them."""
    shared: bool = False
    """One stack of hidden layers for actions and value; else one for each."""
    log_std: float = 0.0
    """Logarithm of the standard deviation of continuous actions, to begin with."""
    model: str | None = None
    """Another network: mlp, nature_cnn, impala_cnn, lstm, or module:Class of your own."""
    sequence: int = 16
    """Recurrent networks: steps that are learnt from in one piece."""
    slots: int = 4
    """Blocks of environments, the most workers there can be. The result depends on it."""
    lag: int = 0
    """1: collect a rollout while learning from the one before, with weights of before that."""
    bf16: bool = False
    """Convolve in bfloat16, on processors with instructions for it."""
    compile: bool = False
    """Run the network through torch.compile: half a minute at first, for long runs."""
    horizon: int = 500_000
    """Environment steps that the run is planned for."""

    def __post_init__(self) -> None:
        check_number("lr", self.lr, high=MOST_LR, high_too=True, example=2.5e-4)
        for name in ("gamma", "gae_lambda"):
            check_number(name, getattr(self, name), high=1, low_too=True, high_too=True)
        check_number("clip", self.clip, high=10, example=0.2)
        for name in ("value_clip", "value_coef", "entropy_coef"):
            check_number(name, getattr(self, name), high=1e6, low_too=True, example=0.5)
        for name, high in (("lr_end", MOST_LR), ("clip_end", 10.0), ("entropy_end", 1e6)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), high=high, low_too=True, high_too=True)
        for name in ("max_grad_norm", "target_kl"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), example=0.5)
        check_number("log_std", self.log_std, low=-20, high=20, low_too=True, high_too=True)
        check_whole("rollout", self.rollout, high=MOST_ROLLOUT)
        check_whole("sequence", self.sequence, high=MOST_ROLLOUT)
        check_whole("slots", self.slots, high=MOST_SLOTS)
        check_whole("lag", self.lag, low=0, high=1)
        for name in ("epochs", "minibatches"):
            check_whole(name, getattr(self, name), high=100_000)
        check_whole("horizon", self.horizon)
        for name in ("normalize_advantage", "normalize_obs", "normalize_reward", "shared"):
            check_flag(name, getattr(self, name))
        for name in ("bf16", "compile"):
            check_flag(name, getattr(self, name))
        check_choice("activation", self.activation, Activation)
        check_widths("hidden", self.hidden)
        check_text("model", self.model)
        if self.model == "lstm" and self.rollout % self.sequence:
            refuse_together(
                f"rollout={self.rollout}",
                f"sequence={self.sequence}",
                "a rollout is cut into whole sequences",
                f"sequence={_divisor(self.rollout, self.sequence)}",
            )
        if self.model == "lstm" and not self.hidden:
            why = "the last hidden layer is what remembers"
            refuse_together("model=lstm", "hidden=()", why, "hidden=(64,)")

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Refuse actions that there is no policy for."""
        ActionHead.of(action_space)

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Whether a checkpoint is without replay that it should have: PPO has none."""
        return False

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Refuse to go on with a run whose rollouts were cut otherwise."""
        saved = parts["rollouts"]
        now = {"num_envs": num_envs, "rollout": self.rollout, "lag": self.lag}
        before = {
            "num_envs": int(saved["envs"]["num_envs"]),
            "rollout": int(saved["steps"]),
            "lag": int(saved["lag"]),
        }
        for name, value in before.items():
            if value != now[name]:
                raise OptionError(
                    f"the run was saved with {name}={value}",
                    f"this one has {name}={now[name]}, and its steps would be counted otherwise",
                    f"{name}={value}",
                )

    def check_envs(self, num_envs: int) -> None:
        """Refuse a number of environments that cannot be cut into slots and minibatches."""
        if num_envs % self.slots:
            refuse_together(
                f"num_envs={num_envs}",
                f"slots={self.slots}",
                "every slot has the same number of environments",
                f"num_envs={-(-num_envs // self.slots) * self.slots}",
            )
        rows = self.rollout * (num_envs // self.slots)
        pieces = rows // self.sequence if self.model == "lstm" else rows
        if pieces % self.minibatches:
            what = "sequences" if self.model == "lstm" else "steps"
            refuse_together(
                f"minibatches={self.minibatches}",
                f"rollout={self.rollout}",
                f"a slot has {pieces} {what}, which are not cut into {self.minibatches} equal "
                "parts",
                f"minibatches={_divisor(pieces, self.minibatches)}",
            )


def _divisor(number: int, near: int) -> int:
    """Return the largest divisor of `number` that is not above `near`."""
    return next(each for each in range(min(near, number), 0, -1) if number % each == 0)
