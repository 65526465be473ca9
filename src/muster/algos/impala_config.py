"""Options of IMPALA, validated on construction. Does not import torch."""

from dataclasses import dataclass

from muster.algos.unroll_config import UnrollConfig


@dataclass(frozen=True)
class IMPALAConfig(UnrollConfig):
    """Options of IMPALA: each unroll is used once, corrected by V-trace."""

    lr: float = 6e-4
    """Learning rate of Adam."""
