"""Numbers that change during a run, as functions of environment steps."""

from collections.abc import Callable


def line(first: float, last: float | None, horizon: int) -> Callable[[float], float]:
    """Return a linear schedule over environment steps: from `first` to `last` at the horizon."""
    if last is None:
        return lambda env_step: first
    return lambda env_step: first + (last - first) * min(1.0, env_step / horizon)
