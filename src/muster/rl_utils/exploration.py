"""Exploration schedules: how much to explore after a number of environment steps."""

import math
from collections.abc import Callable

from muster.errors import OptionError


def get_epsilon_greedy_fn(
    start: float, end: float, decay: float, type: str = "exp"
) -> Callable[[float], float]:
    """Return a function from environment steps to the probability of a random action.

    Args:
        start: Probability at step 0.
        end: Final probability.
        decay: In environment steps. `exp`: the time constant, in which the distance to `end`
            shrinks by a factor of e. `linear`: the steps after which `end` is reached.
        type: `exp` or `linear`.
    """
    for name, value in (("start", start), ("end", end)):
        if not 0 <= value <= 1:
            raise OptionError(
                f"{name}={value!r} is not possible", "it must be a probability", f"{name}=0.1"
            )
    if not (decay > 0 and math.isfinite(decay)):
        raise OptionError(
            f"decay={decay!r} is not possible",
            "it must be a positive number of environment steps",
            "decay=10_000",
        )
    if type == "exp":
        return lambda env_step: end + (start - end) * math.exp(-env_step / decay)
    if type == "linear":
        return lambda env_step: end + (start - end) * max(0.0, 1.0 - env_step / decay)
    raise OptionError(
        f"type={type!r} is not possible", "the schedules are 'exp' and 'linear'", 'type="linear"'
    )
