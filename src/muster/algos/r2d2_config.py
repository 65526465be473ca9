"""Options of R2D2, validated on construction.

A separate file without torch, so that an invalid option is reported before torch is loaded.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from muster.algos.apex_config import ApexConfig
from muster.algos.options import check_choice, check_flag, check_number
from muster.algos.sequence_config import SequenceConfig

Cell = Literal["lstm", "gru"]


@dataclass(frozen=True)
class R2D2Config(SequenceConfig, ApexConfig):
    """Options of R2D2: the numbers of the paper, in sizes for one machine."""

    NAME = "R2D2"
    FIXED_ON_RESUME: ClassVar[frozenset[str]] = (
        ApexConfig.FIXED_ON_RESUME | SequenceConfig.SEQUENCE_OPTIONS
    )

    gamma: float = 0.997
    """Discount per environment step."""
    batch_size: int = 64
    """Sequences per update."""
    buffer_size: int = 200_000
    """Capacity of replay, in environment steps."""
    train_every: int = 1_024
    """Environment steps between training phases."""
    n_step: int = 5
    """Steps of rewards summed before the value of the next state is added (n-step returns)."""
    prioritized: bool = True
    """Sample sequences by the size of their TD errors; actors compute the first ones."""
    alpha: float = 0.9
    """Prioritised replay: 0 samples uniformly, 1 in proportion to the error."""
    beta_start: float = 0.0
    """Prioritised replay: how much of the sampling bias is corrected at the start; 0: none."""
    beta_end: float = 0.0
    """Prioritised replay: the same correction at the end of `horizon`; linear in between."""
    huber: bool = False
    """Huber loss: errors beyond 1 count linearly. Otherwise, half the squared error."""
    hidden: tuple[int, ...] = (128, 128)
    """Width of each layer after the observation encoder; the last is the recurrent layer."""
    model: Cell = "lstm"
    """The recurrent layer: lstm or gru."""
    dueling: bool = True
    """Separate heads for value and advantages, both on top of the recurrent layer."""
    rescale: bool = True
    """Learn values as h(x) = sign(x) (sqrt(|x| + 1) - 1) + rescale_eps x."""
    rescale_eps: float = 1e-3
    """With `rescale`: coefficient of the linear term of h."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("rescale", self.rescale)
        check_number("rescale_eps", self.rescale_eps, high=1, high_too=True, example=1e-3)

    def _check_network(self) -> None:
        check_choice("model", self.model, Cell)
        super()._check_network()
