"""The nouns of a training program: the classes that collect, learn and evaluate."""

from muster.workers.collector import Collector
from muster.workers.evaluator import (
    Evaluation,
    EvaluationAbandoned,
    EvaluationUnfinished,
    Evaluator,
    evaluate_policy,
)
from muster.workers.learner import Learner
from muster.workers.learner_group import LearnerGroup
from muster.workers.rollouts import Rollouts
from muster.workers.slot_worker import SlotWorker

__all__ = [
    "Collector",
    "Evaluation",
    "EvaluationAbandoned",
    "EvaluationUnfinished",
    "Evaluator",
    "Learner",
    "LearnerGroup",
    "Rollouts",
    "SlotWorker",
    "evaluate_policy",
]
