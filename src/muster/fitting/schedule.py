"""The learning rate as a function of the epochs."""

import math
from collections.abc import Callable

from muster.fitting.options import FitOptions


def learning_rate(options: FitOptions) -> Callable[[float], float]:
    """Return the learning rate as a function of completed epochs, which may be a fraction."""
    drops = options.drop_at or (options.planned / 2, options.planned * 3 / 4)

    def rate(epochs: float) -> float:
        now = options.rate
        if options.schedule == "cosine":
            now *= (1 + math.cos(math.pi * min(1.0, epochs / options.planned))) / 2
        elif options.schedule == "step":
            now *= options.drop_by ** sum(epochs >= drop for drop in drops)
        return now * min(1.0, epochs / options.warmup) if options.warmup else now

    return rate
