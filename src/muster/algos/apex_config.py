"""Options of Ape-X, validated on construction.

A separate file without torch, so that an invalid option is reported before torch is loaded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from muster.algos.options import check_number
from muster.algos.q_config import QLearningConfig

if TYPE_CHECKING:
    from muster.data.schema import Column


@dataclass(frozen=True)
class ApexConfig(QLearningConfig):
    """Options of Ape-X: the ratios of the paper, in sizes for one machine."""

    NAME = "Ape-X"
    OF_RUNS: ClassVar[dict[str, Any]] = {"num_envs": 8}

    batch_size: int = 512
    """Transitions per update."""
    buffer_size: int = 500_000
    """Capacity of replay, in transitions."""
    learning_starts: int = 10_000
    """Environment steps before the first update."""
    n_step: int = 3
    """Steps of rewards summed before the value of the next state is added (n-step returns)."""
    prioritized: bool = True
    """Sample transitions by the size of their TD error; actors compute the first one."""
    beta_end: float = 0.4
    """Prioritised replay: the same correction at the end of `horizon`; linear in between."""
    updates_per_train: int = 1
    """Updates in each training phase; phases are `train_every` environment steps apart."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    target_update: int = 2_500
    """Updates between changes of the target network."""
    double: bool = True
    """Double Q-learning: the online network chooses the action that the target network values."""
    dueling: bool = True
    """Separate streams for value and advantages; each stream has its own last hidden layer."""
    max_grad_norm: float | None = 40.0
    """Largest norm of a gradient; larger ones are scaled down to it. None: no limit."""
    horizon: int = 1_000_000
    """Environment steps for which the run and its schedules are planned."""
    eps_base: float = 0.4
    """Probability of a random action in the first environment of the first actor."""
    eps_alpha: float = 7.0
    """Environment i of N, over all actors, has epsilon eps_base^(1 + eps_alpha i / (N - 1))."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eps_base", self.eps_base, high=1, low_too=True, high_too=True, example=0.4)
        check_number("eps_alpha", self.eps_alpha, low_too=True, example=7)

    @property
    def schema(self) -> "tuple[Column, ...]":
        """Extra columns that actors write: the absolute TD error of each step, as its priority."""
        from muster.data.schema import PRIORITY

        return (PRIORITY,) if self.prioritized else ()
