"""Rewards: one real number from each env, finite in float32."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from muster.envs.errors import RefusedValue, brief

_LARGEST = float(np.finfo(np.float32).max)


def real_number(index: int, reward: Any) -> float:
    """Return a reward that is a Python or NumPy number, or an array of shape (), as a float.

    Raises:
        RefusedValue: It is anything else; `index` is its row.
    """
    try:
        value = np.asarray(reward)
    except Exception:  # ragged, or an object that cannot become an array
        value = np.empty(0, object)
    if value.dtype.kind not in "fiub" or value.ndim:
        what, why = f"is {brief(reward)}", "a reward is one real number"
        raise RefusedValue(index, "reward", what, why, "return float(reward) from step")
    return float(value)


def refuse_infinite_rewards(rewards: Iterable[Any]) -> None:
    """Raise RefusedValue for the first reward that is not finite as a float32, if any."""
    for index, reward in enumerate(rewards):
        number = real_number(index, reward)
        if not abs(number) <= _LARGEST:
            raise RefusedValue(
                index,
                "reward",
                f"is {number}",
                "one reward that is not finite, in float32, makes every weight of a network NaN",
                "look for a division by zero or a diverging simulation in the env",
            )
