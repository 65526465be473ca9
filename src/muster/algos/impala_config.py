"""How IMPALA learns, validated on construction. Does not import torch."""

from dataclasses import dataclass

from muster.algos.unroll_config import UnrollConfig


@dataclass(frozen=True)
class IMPALAConfig(UnrollConfig):
    """How IMPALA learns: unrolls of older weights, each once, corrected by V-trace."""

    lr: float = 6e-4
    """Learning rate of Adam."""
