"""Experience: where it is kept, how it is drawn, and how often. Knows no torch."""

from muster.data.batch import Batch, Obs, Transitions
from muster.data.limiter import SamplesPerInsert
from muster.data.replay import ReplayBuffer
from muster.data.shard import ReplayShard, ShardFeed
from muster.data.sharded_replay import ShardedReplay
from muster.data.sum_tree import SumTree

__all__ = [
    "Batch",
    "Obs",
    "ReplayBuffer",
    "ReplayShard",
    "SamplesPerInsert",
    "ShardFeed",
    "ShardedReplay",
    "SumTree",
    "Transitions",
]
