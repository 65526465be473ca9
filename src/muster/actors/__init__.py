"""Building blocks of distributed RL on Ray: independent classes, without Task or Parallel.

    RolloutWorker x N ──fragments──> ReplayBuffer (shards) ──batches──> Learner x K
          └────<──weights, by version──< ParameterServer <──gradients, each used once──┘

A block is a handle on one or several Ray actors. It can be passed to other blocks. Its actors end
when the last handle is deleted, and their exceptions are raised where the result is awaited.
Importing this package does not import Ray; the first block, or `cluster`, does.
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.actors.calls import Call, finish
    from muster.actors.errors import BlockError, ReplayEmptyError
    from muster.actors.learning import Learner, LearningReport
    from muster.actors.parameters import ParameterServer
    from muster.actors.ray_here import cluster
    from muster.actors.replay import ReplayBuffer
    from muster.actors.rollout import RolloutReport, RolloutWorker
    from muster.actors.sampled_batch import SampledBatch

__all__ = [
    "BlockError",
    "Call",
    "Learner",
    "LearningReport",
    "ParameterServer",
    "ReplayBuffer",
    "ReplayEmptyError",
    "RolloutReport",
    "RolloutWorker",
    "SampledBatch",
    "cluster",
    "finish",
]

_HOMES = {
    "muster.actors.calls": ("Call", "finish"),
    "muster.actors.ray_here": ("cluster",),
    "muster.actors.errors": ("BlockError", "ReplayEmptyError"),
    "muster.actors.learning": ("Learner", "LearningReport"),
    "muster.actors.parameters": ("ParameterServer",),
    "muster.actors.replay": ("ReplayBuffer",),
    "muster.actors.sampled_batch": ("SampledBatch",),
    "muster.actors.rollout": ("RolloutReport", "RolloutWorker"),
}

__getattr__ = load_when_asked_for(
    __name__, {name: module for module, names in _HOMES.items() for name in names}
)
