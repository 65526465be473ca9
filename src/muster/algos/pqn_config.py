"""Options of PQN, validated on construction. Does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym

from muster.algos.in_step_config import Epochs, InStepConfig
from muster.algos.options import Activation, check_flag, check_number
from muster.errors import OptionError


@dataclass(frozen=True)
class PQNConfig(Epochs, InStepConfig):
    """Options of PQN: Q(lambda) over rollouts of many environments, without replay."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = InStepConfig.FIXED_ON_RESUME | {"layer_norm"}
    """Options that define a run: its network, and how its rollouts are divided."""
    OF_RUNS: ClassVar[Mapping[str, Any]] = {**InStepConfig.OF_RUNS, "num_envs": 32}
    """Run options whose default differs for this algorithm."""

    rollout: int = 32
    """Steps of every environment between learning phases."""
    lr: float = 5e-4
    """Learning rate of Adam."""
    max_grad_norm: float | None = 10.0
    """Largest norm of a gradient; larger ones are scaled down to it."""
    q_lambda: float = 0.65
    """Lambda of the targets: 0 trusts only the values of the next states, 1 only the rewards."""
    eps_start: float = 1.0
    """Probability of a random action at the start."""
    eps_end: float = 0.05
    """Final probability of a random action, reached linearly."""
    eps_decay: float = 100_000.0
    """Environment steps until `eps_end` is reached."""
    hidden: tuple[int, ...] = (128, 128)
    """Width of each hidden layer."""
    activation: Activation = "relu"
    """Activation after each hidden layer."""
    layer_norm: bool = True
    """Normalise each hidden layer, which keeps learning stable without a target network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("q_lambda", self.q_lambda, high=1, low_too=True, high_too=True)
        for name in ("eps_start", "eps_end"):
            check_number(name, getattr(self, name), high=1, low_too=True, high_too=True)
        check_number("eps_decay", self.eps_decay, example=100_000)
        check_flag("layer_norm", self.layer_norm)

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Raise OptionError unless the action space is Discrete."""
        if not isinstance(action_space, gym.spaces.Discrete):
            raise OptionError(
                f"PQN needs Discrete actions; got {action_space}",
                "it compares the values of all actions, so there must be finitely many",
                "muster train ppo ...",
            )
