"""The verbs of a training program: middleware for a `Task`, each made by a function.

They speak through ctx: `env_step` and `train_iter` (kept), and, for one loop, `metrics` (a dict of
numbers to be written) and `evaluation`.
"""

from muster.middleware.evaluate import evaluate
from muster.middleware.experience import collect, train
from muster.middleware.guard import GuardError, check_state, guard, guarded
from muster.middleware.record import checkpoint, log_metrics
from muster.middleware.stop import stop_after

__all__ = [
    "GuardError",
    "check_state",
    "checkpoint",
    "collect",
    "evaluate",
    "guard",
    "guarded",
    "log_metrics",
    "stop_after",
    "train",
]
