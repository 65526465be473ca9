"""Experience: where it is kept, how it is drawn, and how often. Knows no torch."""

from muster.data.batch import Batch, Obs, Transitions
from muster.data.limiter import SamplesPerInsert
from muster.data.replay import ReplayBuffer
from muster.data.sum_tree import SumTree

__all__ = ["Batch", "Obs", "ReplayBuffer", "SamplesPerInsert", "SumTree", "Transitions"]
