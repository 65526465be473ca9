"""How Ape-X learns, checked when it is made.

A file of its own, without torch: what is wrong with an option is said before that is loaded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from muster.algos.options import check_number
from muster.algos.q_config import QLearningConfig

if TYPE_CHECKING:
    from muster.data.schema import Column


@dataclass(frozen=True)
class ApexConfig(QLearningConfig):
    """How Ape-X learns: the ratios of the paper, in sizes for one machine."""

    NAME = "Ape-X"
    OF_RUNS: ClassVar[dict[str, Any]] = {"num_envs": 8}

    batch_size: int = 512
    """Transitions per update."""
    buffer_size: int = 500_000
    """Transitions that replay holds."""
    learning_starts: int = 10_000
    """Environment steps before the first update."""
    n_step: int = 3
    """Steps whose rewards are summed before the value of what follows is added."""
    prioritized: bool = True
    """Draw transitions by the size of their TD error, which actors compute first."""
    beta_end: float = 0.4
    """The same after `horizon` environment steps; linear in between."""
    updates_per_train: int = 1
    """Updates in each phase of them, `train_every` environment steps apart."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    target_update: int = 2_500
    """Updates from one change of the target network to the next."""
    double: bool = True
    """Let the learning network choose the action that the target network values."""
    dueling: bool = True
    """Separate streams for value and advantages; the last hidden layer is each stream's own."""
    max_grad_norm: float | None = 40.0
    """A longer gradient is shortened to this. None: never."""
    horizon: int = 1_000_000
    """Environment steps that the run is planned for."""
    eps_base: float = 0.4
    """Probability of a random action in the first environment of the first actor."""
    eps_alpha: float = 7.0
    """In environment i of N, over all actors, it is eps_base^(1 + eps_alpha i / (N - 1))."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eps_base", self.eps_base, high=1, low_too=True, high_too=True, example=0.4)
        check_number("eps_alpha", self.eps_alpha, low_too=True, example=7)

    @property
    def schema(self) -> "tuple[Column, ...]":
        """What actors write besides: how large they found the error of each step."""
        from muster.data.schema import PRIORITY

        return (PRIORITY,) if self.prioritized else ()
