"""Experience: where it is stored, and how it is sampled and how often. Does not import torch."""

from muster.data.batch import Batch, SequenceBatch
from muster.data.block import StepBlock
from muster.data.limiter import SamplesPerInsert
from muster.data.obs import Obs
from muster.data.replay import ReplayBuffer
from muster.data.schema import PRIORITY, VERSION, Column, Schema
from muster.data.shard import ReplayShard, ShardFeed
from muster.data.sharded_replay import ShardedReplay
from muster.data.sum_tree import SumTree
from muster.data.units import Sequence, Transition, Unroll

__all__ = [
    "PRIORITY",
    "VERSION",
    "Batch",
    "Column",
    "Obs",
    "ReplayBuffer",
    "ReplayShard",
    "SamplesPerInsert",
    "Schema",
    "Sequence",
    "SequenceBatch",
    "ShardFeed",
    "ShardedReplay",
    "StepBlock",
    "SumTree",
    "Transition",
    "Unroll",
]
