"""The verbs of a training program: middleware for a `Task`, each made by a function.

They communicate through ctx: `env_step` and `train_iter` (kept), and, for one loop, `metrics` (a
dict of numbers to write), `eval_return` (of an evaluation whose result arrived in this loop) and
`evaluation` (of the weights at the end of the loop).
"""

from muster.middleware.evaluate import evaluate
from muster.middleware.experience import collect, train
from muster.middleware.gradients import (
    apply_gradients,
    compute_gradient,
    contribute,
    take_gradients,
)
from muster.middleware.guard import GuardError, check_state, guard, guarded
from muster.middleware.nodes import act, judge, push_weights, receive, serve
from muster.middleware.record import checkpoint, count_episodes, log_metrics, write_line
from muster.middleware.stop import stop_after
from muster.middleware.together import agree, collect_rollout, learn
from muster.middleware.unrolls import (
    act_unrolls,
    collect_unrolls,
    learn_unrolls,
    receive_unrolls,
)

__all__ = [
    "GuardError",
    "act",
    "act_unrolls",
    "agree",
    "apply_gradients",
    "check_state",
    "checkpoint",
    "collect",
    "collect_rollout",
    "collect_unrolls",
    "compute_gradient",
    "contribute",
    "count_episodes",
    "evaluate",
    "guard",
    "guarded",
    "judge",
    "learn",
    "learn_unrolls",
    "log_metrics",
    "push_weights",
    "receive",
    "receive_unrolls",
    "serve",
    "stop_after",
    "take_gradients",
    "train",
    "write_line",
]
