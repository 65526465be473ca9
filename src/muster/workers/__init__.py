"""The nouns of a training program: who collects, who learns, who evaluates."""

from muster.workers.collector import Collector
from muster.workers.evaluator import (
    Evaluation,
    EvaluationAbandoned,
    Evaluator,
    evaluate_policy,
)
from muster.workers.learner import Learner

__all__ = [
    "Collector",
    "Evaluation",
    "EvaluationAbandoned",
    "Evaluator",
    "Learner",
    "evaluate_policy",
]
