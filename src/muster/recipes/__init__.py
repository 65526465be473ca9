"""Whole training programs made of the public parts: what the command line runs."""

from muster.recipes.options import TrainOptions
from muster.recipes.result import RunResult
from muster.recipes.train import ALGORITHMS, train

__all__ = ["ALGORITHMS", "RunResult", "TrainOptions", "train"]
