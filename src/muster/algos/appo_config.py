"""Options of APPO, validated on construction. Does not import torch."""

from dataclasses import dataclass

from muster.algos.options import check_number
from muster.algos.unroll_config import UnrollConfig


@dataclass(frozen=True)
class APPOConfig(UnrollConfig):
    """Options of APPO: each unroll is used once, with PPO's clipped loss."""

    lr: float = 6e-4
    """Learning rate of Adam."""
    normalize_advantage: bool = True
    """Normalise the advantages of a batch to mean 0 and standard deviation 1."""
    clip: float = 0.2
    """Clip range: how far the ratio of new action probability to that when acting may leave 1."""
    clip_end: float | None = None
    """Final clip range, reached linearly over the horizon. None: constant."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("clip", self.clip, high=10, example=0.2)
        if self.clip_end is not None:
            check_number("clip_end", self.clip_end, high=10.0, low_too=True, high_too=True)
